// A data set that lies in memory: one tensor per field, one row per sample. For what a program has already, for files
// that were read whole, and for tests.
#pragma once

#include <string>

#include "orthant/data/dataset.h"
#include "orthant/data/field_checks.h"

namespace orthant {

class FixedDataset : public Dataset {
 public:
  // The content is checked against `limits`, see check_fields; `source` names it in errors. Tensors are shared with the
  // caller, who must not write to them any more.
  FixedDataset(Fields fields, const FieldLimits& limits = {}, std::vector<double> class_weights = {},
               const std::string& source = "data");

  std::int64_t size() const override { return size_; }
  Fields rows(std::span<const std::int64_t> indices) const override;

 private:
  Fields fields_;
  std::int64_t size_;
};

}  // namespace orthant
