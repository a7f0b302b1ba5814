// What the loader hands to a training step: named tensors with one row per sample, and what the whole global batch adds
// up to, so that a rank knows the divisor of the loss without asking the others. A value; tensors are on the CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace orthant {

// By field name: "input_ids", "labels", "tabular". Dim 0 of each tensor counts rows, the same number in all.
using Fields = std::map<std::string, at::Tensor>;

// The field of targets, int64. Targets of kIgnoredLabel have weight 0 and count nowhere.
inline constexpr const char* kLabelsField = "labels";
inline constexpr std::int64_t kIgnoredLabel = -100;

// The rows of one step that this replica runs. Rows past the real ones are padding, see Note [Rows of a replica] in
// layout/rows.h.
struct Batch {
  Fields fields;
  std::int64_t rows = 0;       // real rows in `fields`; those after them are padding
  std::int64_t first_row = 0;  // place of row 0 in the global batch
  std::int64_t step = 0;
  std::int64_t epoch = 0;
  bool last_of_epoch = false;
  std::int64_t samples = 0;            // real rows of the global batch
  std::vector<std::int64_t> ids = {};  // which samples the real rows in `fields` are; a program's own have no numbers
  std::int64_t tokens = 0;             // of the global batch: positions that are not padding
  double weight_sum = 0;               // global sum of target weights: what the loss is divided by
};

// Rows that a program has at hand, as the whole global batch of a step: every row counts 1.
Batch batch_of(Fields fields);

}  // namespace orthant
