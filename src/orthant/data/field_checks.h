// Bad content found before it reaches a kernel, where an id outside its table is a crash or silent nonsense. Data sets
// of fixed content check themselves once with this; the errors are DataErrors that name field, row, position and value.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "orthant/data/batch.h"

namespace orthant {

struct FieldLimits {
  std::map<std::string, std::int64_t> vocab_sizes = {};  // field of token ids -> its ids are in [0, vocab size)
  std::int64_t num_labels = 0;  // labels are in [0, num_labels) or kIgnoredLabel; 0: there need be no labels
};

// Refuses: no fields or no rows, fields that differ in their rows, ids and labels outside the limits or of another
// dtype than int64, limits for a field that is not there, numbers that are not finite. `source` begins every message.
void check_fields(const Fields& fields, const FieldLimits& limits, const std::string& source);

// ConfigError unless there are none, or one finite positive weight per class.
void check_class_weights(std::span<const double> weights, std::int64_t num_labels);

}  // namespace orthant
