#include "orthant/schedule/forward_gradients.h"

#include <map>

#include "orthant/base/index.h"

namespace orthant {

ForwardGradients gradients_in_forward(const std::vector<Action>& actions, const GraphSpec& graph) {
  ForwardGradients found;
  std::map<int, int> open;  // unit -> microbatch whose forward was the last thing that happened to it
  for (const Action& action : actions) {
    const bool forward = action.kind == ActionKind::forward;
    const bool backward = action.kind == ActionKind::backward || action.kind == ActionKind::backward_input ||
                          action.kind == ActionKind::backward_weight;
    if ((!forward && !backward) || !graph.units[to_index(action.unit)].logits) continue;
    const auto last = open.extract(action.unit);
    if (forward) open[action.unit] = action.microbatch;
    if (action.kind == ActionKind::backward && !last.empty() && last.mapped() == action.microbatch) {
      found.insert({action.unit, action.microbatch});
    }
  }
  return found;
}

}  // namespace orthant
