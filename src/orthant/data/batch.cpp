#include "orthant/data/batch.h"

#include <utility>

#include "orthant/base/error.h"

namespace orthant {

Batch batch_of(Fields fields) {
  if (fields.empty()) throw ConfigError("a batch without fields");
  Batch batch;
  batch.rows = batch.samples = fields.begin()->second.size(0);
  batch.weight_sum = static_cast<double>(batch.rows);
  batch.fields = std::move(fields);
  return batch;
}

}  // namespace orthant
