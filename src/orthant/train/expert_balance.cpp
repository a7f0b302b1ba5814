#include "orthant/train/expert_balance.h"

#include <ATen/ATen.h>

namespace orthant {

void move_router_biases(ParameterStore& store, const at::Tensor& loads, const at::Tensor& update) {
  at::NoGradGuard no_gradients;
  bool moved = false;
  std::int64_t begin = 0;
  for (const UnitSpec& unit : store.graph().units) {
    const std::int64_t experts = unit.num_experts();
    for (const ParameterSpec& parameter : unit.parameters) {
      if (parameter.moved_by_loads == 0) continue;
      const at::Tensor load = loads.narrow(0, begin, experts);
      const at::Tensor way = (load.mean() - load).sign().mul_(update.to(load.scalar_type()));
      for (const auto& buffer : store.buffers()) {
        const FlatEntry* entry = buffer->layout().find(parameter.name);
        if (entry != nullptr) buffer->add(*entry, way * parameter.moved_by_loads);
      }
      moved = true;
    }
    if (experts > 0) begin += experts + 1;
  }
  if (moved) store.publish_frozen();
}

}  // namespace orthant
