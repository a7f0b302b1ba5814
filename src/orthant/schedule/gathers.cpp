#include "orthant/schedule/gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/error.h"

namespace orthant {
namespace {

bool needs_parameters(const Action& action) {
  return action.kind == ActionKind::forward || action.kind == ActionKind::backward ||
         action.kind == ActionKind::backward_input;
}

bool is_use(const Action& action, const GatherPolicy& policy) {
  return needs_parameters(action) && policy.sharded.at(static_cast<std::size_t>(action.unit));
}

// A stretch of the list during which a unit is full: uses of its own, nobody else's in between unless all is kept.
struct Stretch {
  int unit;
  std::ptrdiff_t first_use;  // positions in the list
  std::ptrdiff_t last_use;
};

std::vector<Stretch> stretches(const std::vector<Action>& actions, const GatherPolicy& policy) {
  std::vector<Stretch> found;
  std::map<int, std::size_t> open;  // unit -> its stretch that a further use makes longer
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!is_use(actions[i], policy)) continue;
    const int unit = actions[i].unit;
    const auto position = static_cast<std::ptrdiff_t>(i);
    if (!policy.keep_gathered && !found.empty() && found.back().unit != unit) open.clear();
    const auto [place, added] = open.emplace(unit, found.size());
    if (added) found.push_back({unit, position, position});
    found[place->second].last_use = position;
  }
  return found;
}

// For each stretch the position after which it may be gathered; -1: at the start. Counts as if everything were freed
// after its last use; what is kept is gathered as far ahead as it would be otherwise.
std::vector<std::ptrdiff_t> rooms(const std::vector<Stretch>& found, const GatherPolicy& policy) {
  std::vector<std::ptrdiff_t> room(found.size(), -1);
  std::map<int, std::ptrdiff_t> freed;  // unit -> last use of its latest stretch
  const auto limit = static_cast<std::size_t>(policy.limit);
  for (std::size_t k = 0; k < found.size(); ++k) {
    if (k >= limit) room[k] = policy.keep_gathered ? found[k - limit].first_use : found[k - limit].last_use;
    const auto [before, first] = freed.emplace(found[k].unit, found[k].last_use);
    if (!first) room[k] = std::max(room[k], before->second);
    before->second = found[k].last_use;
  }
  return room;
}

}  // namespace

std::vector<Action> with_gathers(const std::vector<Action>& actions, const GatherPolicy& policy) {
  if (policy.limit < 1) throw InternalError(fmt::format("{} gathered units at most: nothing could run", policy.limit));
  const auto found = stretches(actions, policy);
  const auto room = rooms(found, policy);
  std::vector<std::vector<Action>> after(actions.size());
  std::vector<Action> list;
  for (const auto& stretch : found) {
    after[static_cast<std::size_t>(stretch.last_use)].push_back({.kind = ActionKind::free, .unit = stretch.unit});
  }
  for (std::size_t k = 0; k < found.size(); ++k) {
    auto& place = room[k] < 0 ? list : after[static_cast<std::size_t>(room[k])];
    place.push_back({.kind = ActionKind::gather, .unit = found[k].unit});
  }
  for (std::size_t i = 0; i < actions.size(); ++i) {
    list.push_back(actions[i]);
    list.insert(list.end(), after[i].begin(), after[i].end());
  }
  return list;
}

int peak_gathered(const std::vector<Action>& actions) {
  int full = 0;
  int peak = 0;
  for (const auto& action : actions) {
    if (action.kind == ActionKind::gather) peak = std::max(peak, ++full);
    if (action.kind == ActionKind::free) --full;
  }
  return peak;
}

void check_gathers(const std::vector<Action>& actions, const GatherPolicy& policy) {
  std::set<int> full;
  const auto fail = [](const Action& action, const char* what) {
    throw InternalError(fmt::format("gathers: {} of unit {} microbatch {}: {}", action_name(action.kind), action.unit,
                                    action.microbatch, what));
  };
  for (const auto& action : actions) {
    if (action.kind == ActionKind::gather && !full.insert(action.unit).second) fail(action, "it is full already");
    if (action.kind == ActionKind::free && full.erase(action.unit) == 0) fail(action, "it is not full");
    if (is_use(action, policy) && !full.contains(action.unit)) fail(action, "its parameters are shards");
    if (!policy.keep_gathered && static_cast<int>(full.size()) > policy.limit) fail(action, "too many units are full");
  }
  if (!full.empty()) throw InternalError(fmt::format("gathers: unit {} is full at the end", *full.begin()));
}

}  // namespace orthant
