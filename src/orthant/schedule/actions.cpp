#include "orthant/schedule/actions.h"

#include <fmt/format.h>

#include "orthant/base/error.h"

namespace orthant {
namespace {

// Also for an index that names nothing: errors about such actions print them.
template <class Named>
std::string name_at(const std::vector<Named>& named, int index, std::string_view what) {
  if (index < 0 || index >= static_cast<int>(named.size())) return fmt::format("{} {}", what, index);
  return named[static_cast<std::size_t>(index)].name;
}

}  // namespace

std::string_view action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return "F";
    case ActionKind::backward:
      return "BW";
    case ActionKind::backward_input:
      return "B";
    case ActionKind::backward_weight:
      return "W";
    case ActionKind::gather:
      return "gather";
    case ActionKind::free:
      return "free";
    case ActionKind::reduce:
      return "reduce";
    case ActionKind::send:
      return "send";
    case ActionKind::receive:
      return "receive";
    case ActionKind::send_gradient:
      return "send_gradient";
    case ActionKind::receive_gradient:
      return "receive_gradient";
  }
  throw InternalError(fmt::format("action kind {} has no name", static_cast<int>(kind)));
}

std::string to_string(const Action& action, const GraphSpec& graph) {
  const std::string_view name = action_name(action.kind);
  const auto unit = [&](int index) { return name_at(graph.units, index, "unit"); };
  const auto value = [&] { return name_at(graph.values, action.value, "value"); };
  switch (action.kind) {
    case ActionKind::gather:
    case ActionKind::free:
      return fmt::format("{} {}", name, unit(action.unit));
    case ActionKind::reduce:
      if (action.microbatch < 0) return fmt::format("{} {}", name, unit(action.unit));
      return fmt::format("{} {} m{}", name, unit(action.unit), action.microbatch);
    case ActionKind::send:
      return fmt::format("{} {} m{} -> {}", name, value(), action.microbatch, action.peer);
    case ActionKind::receive:
      return fmt::format("{} {} m{} <- {}", name, value(), action.microbatch, action.peer);
    case ActionKind::send_gradient:
      return fmt::format("{} {} of {} m{} -> {}", name, value(), unit(action.consumer), action.microbatch, action.peer);
    case ActionKind::receive_gradient:
      return fmt::format("{} {} of {} m{} <- {}", name, value(), unit(action.consumer), action.microbatch, action.peer);
    default:
      return fmt::format("{} {} m{}", name, unit(action.unit), action.microbatch);
  }
}

}  // namespace orthant
