#include "orthant/models/totals.h"

namespace orthant {
namespace {

std::int64_t num_trainable(const UnitSpec& unit) {
  std::int64_t count = 0;
  for (const auto& parameter : unit.parameters) {
    if (parameter.trainable) count += num_elements(parameter.shape);
  }
  return count;
}

}  // namespace

GraphTotals totals(const GraphSpec& spec) {
  GraphTotals sum;
  for (const auto& unit : spec.units) {
    sum.parameters += unit.num_parameters();
    sum.trainable += num_trainable(unit);
    sum.forward_flops += unit.cost.forward_flops;
    sum.total_flops += unit.cost.forward_flops + unit.cost.input_flops + unit.cost.weight_flops;
  }
  return sum;
}

StateBytes state_bytes(const UnitSpec& unit, const StateTypes& types) {
  const std::int64_t all = unit.num_parameters();
  const std::int64_t trainable = num_trainable(unit);
  StateBytes bytes;
  bytes.parameters = all * (bytes_of(types.parameters) - (types.splits_parameters ? bytes_of(types.compute) : 0));
  bytes.compute_copy = types.compute == types.parameters ? 0 : all * bytes_of(types.compute);
  bytes.gradients = trainable * bytes_of(types.reduce);
  bytes.moments = trainable * bytes_of(types.parameters) * types.moments;
  return bytes;
}

}  // namespace orthant
