#include "orthant/schedule/list_places.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {
namespace {

bool is_compute(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::backward_input ||
         kind == ActionKind::backward_weight;
}

bool is_gradient(ActionKind kind) {
  return kind == ActionKind::send_gradient || kind == ActionKind::receive_gradient;
}

bool names_unit(ActionKind kind) {
  return is_compute(kind) || kind == ActionKind::gather || kind == ActionKind::free || kind == ActionKind::reduce;
}

bool within(int index, std::size_t size) {
  return index >= 0 && index < static_cast<int>(size);
}

}  // namespace

ListPlaces::ListPlaces(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches,
                       const ShowPlaces& show)
    : lists_(lists), graph_(graph), show_(show), edges_(graph), pp_coordinate_of_(graph.units.size(), -1) {
  for (std::size_t pp_coordinate = 0; pp_coordinate < lists_.size(); ++pp_coordinate) {
    for (std::size_t i = 0; i < lists_[pp_coordinate].size(); ++i) {
      const ActionPlace place{static_cast<int>(pp_coordinate), static_cast<int>(i)};
      const Action& action = lists_[pp_coordinate][i];
      check_names(place, microbatches);
      if (!is_compute(action.kind)) continue;
      forward_only_ = forward_only_ && action.kind == ActionKind::forward;
      int& home = pp_coordinate_of_[static_cast<std::size_t>(action.unit)];
      if (home < 0) home = place.pp_coordinate;
      if (home != place.pp_coordinate) {
        refuse(place, fmt::format("runs a unit that also runs on pp {}", home), "keep every unit on one pp coordinate");
      }
    }
  }
}

void ListPlaces::check_names(ActionPlace place, int microbatches) const {
  const Action& action = at(place);
  const auto require = [&](bool known, std::string_view what) {
    if (known) return;
    refuse(place, fmt::format("names a {} that does not exist", what), "lower the schedule for this graph");
  };
  if (names_unit(action.kind)) {
    require(within(action.unit, graph_.units.size()), "unit");
    if (!is_compute(action.kind)) return;
  } else {
    require(within(action.value, graph_.values.size()), "value");
    require(within(action.peer, lists_.size()) && action.peer != place.pp_coordinate, "peer");
    const auto& consumers = edges_.consumers[static_cast<std::size_t>(action.value)];
    require(is_gradient(action.kind) ? std::ranges::binary_search(consumers, action.consumer) : action.consumer == -1,
            "consumer");
  }
  require(within(action.microbatch, static_cast<std::size_t>(microbatches)), "microbatch");
}

void ListPlaces::refuse(ActionPlace place, const std::string& why, const std::string& remedy) const {
  throw ConfigError(fmt::format("\"{}\" on pp {} {}\n{}", text(place), place.pp_coordinate, why, show_({place})),
                    {.remedy = remedy});
}

void ListPlaces::refuse_missing(const Action& action, int pp_coordinate) const {
  throw ConfigError(
      fmt::format("\"{}\" is missing", to_string(action, graph_)),
      {.remedy = pp_coordinate < 0 ? "add it to one pp coordinate" : fmt::format("add it to pp {}", pp_coordinate)});
}

void ListPlaces::refuse_cycle(const std::vector<ActionPlace>& cycle) const {
  std::vector<std::string> waits;
  for (const ActionPlace& place : cycle)
    waits.push_back(fmt::format("pp {} in \"{}\"", place.pp_coordinate, text(place)));
  throw ConfigError(fmt::format("deadlock: {} wait for each other\n{}", fmt::join(waits, ", "), show_(cycle)),
                    {.remedy = "let one of them send what its peer waits for before it waits itself"});
}

}  // namespace orthant
