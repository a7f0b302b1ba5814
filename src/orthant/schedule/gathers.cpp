#include "orthant/schedule/gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/error.h"

namespace orthant {
namespace {

int group_of(int unit, const GatherPolicy& policy) {
  return policy.groups.empty() ? unit : policy.groups.at(static_cast<std::size_t>(unit));
}

bool needs_parameters(const Action& action, const GatherPolicy& policy) {
  if (action.kind == ActionKind::forward) return true;
  if (action.kind != ActionKind::backward && action.kind != ActionKind::backward_input) return false;
  return policy.reads_in_backward.empty() || policy.reads_in_backward.at(static_cast<std::size_t>(action.unit));
}

bool is_use(const Action& action, const GatherPolicy& policy) {
  return needs_parameters(action, policy) && policy.sharded.at(static_cast<std::size_t>(action.unit));
}

// The units of each group that this list uses.
using Members = std::map<int, std::set<int>>;

Members used_members(const std::vector<Action>& actions, const GatherPolicy& policy) {
  Members members;
  for (const Action& action : actions) {
    if (is_use(action, policy)) members[group_of(action.unit, policy)].insert(action.unit);
  }
  return members;
}

// A stretch of the list during which a group is full: uses of its own, nobody else's in between unless all is kept.
struct Stretch {
  int group;
  std::ptrdiff_t first_use;  // positions in the list
  std::ptrdiff_t last_use;
};

std::vector<Stretch> stretches(const std::vector<Action>& actions, const GatherPolicy& policy) {
  std::vector<Stretch> found;
  std::map<int, std::size_t> open;  // group -> its stretch that a further use makes longer
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (!is_use(actions[i], policy)) continue;
    const int group = group_of(actions[i].unit, policy);
    const auto position = static_cast<std::ptrdiff_t>(i);
    if (!policy.keep_gathered && !found.empty() && found.back().group != group) open.clear();
    const auto [place, added] = open.emplace(group, found.size());
    if (added) found.push_back({group, position, position});
    found[place->second].last_use = position;
  }
  return found;
}

// For each stretch the position after which it may be gathered; -1: at the start. Ascending. Counts as if everything
// were freed after its last use; what is kept is gathered as far ahead as it would be otherwise.
std::vector<std::ptrdiff_t> rooms(const std::vector<Stretch>& found, const GatherPolicy& policy) {
  std::vector<std::ptrdiff_t> room(found.size(), -1);
  std::map<int, std::ptrdiff_t> freed;  // group -> last use of its latest stretch
  const auto limit = static_cast<std::size_t>(policy.limit);
  for (std::size_t k = 0; k < found.size(); ++k) {
    if (k > 0) room[k] = room[k - 1];
    if (k >= limit) {
      const Stretch& leaves = found[k - limit];
      room[k] = std::max(room[k], policy.keep_gathered ? leaves.first_use : leaves.last_use);
    }
    const auto [before, first] = freed.emplace(found[k].group, found[k].last_use);
    if (!first) room[k] = std::max(room[k], before->second);
    before->second = found[k].last_use;
  }
  return room;
}

void append(std::vector<Action>& list, ActionKind kind, const std::set<int>& units) {
  for (const int unit : units) list.push_back({.kind = kind, .unit = unit});
}

// Follows a list: which units, and so which groups, are full.
class FullUnits {
 public:
  explicit FullUnits(const GatherPolicy& policy) : policy_(policy) {}

  // False when the action gathers what is full or frees what is not.
  bool take(const Action& action) {
    if (action.kind == ActionKind::gather) return groups_[group_of(action.unit, policy_)].insert(action.unit).second;
    if (action.kind != ActionKind::free) return true;
    const auto group = groups_.find(group_of(action.unit, policy_));
    if (group == groups_.end() || group->second.erase(action.unit) == 0) return false;
    if (group->second.empty()) groups_.erase(group);
    return true;
  }

  bool contains(int unit) const { return members(group_of(unit, policy_)).contains(unit); }
  const std::set<int>& members(int group) const {
    static const std::set<int> kNone;
    const auto found = groups_.find(group);
    return found == groups_.end() ? kNone : found->second;
  }
  int num_groups() const { return static_cast<int>(groups_.size()); }
  const Members& groups() const { return groups_; }

 private:
  const GatherPolicy& policy_;
  Members groups_;  // those with a full member
};

}  // namespace

std::vector<Action> with_gathers(const std::vector<Action>& actions, const GatherPolicy& policy) {
  if (policy.limit < 1) throw InternalError(fmt::format("{} gathered groups at most: nothing could run", policy.limit));
  const auto members = used_members(actions, policy);
  const auto found = stretches(actions, policy);
  const auto room = rooms(found, policy);
  std::vector<std::vector<Action>> after(actions.size());
  std::vector<Action> list;
  for (const Stretch& stretch : found) {
    append(after[static_cast<std::size_t>(stretch.last_use)], ActionKind::free, members.at(stretch.group));
  }
  for (std::size_t k = 0; k < found.size(); ++k) {
    auto& place = room[k] < 0 ? list : after[static_cast<std::size_t>(room[k])];
    append(place, ActionKind::gather, members.at(found[k].group));
  }
  for (std::size_t i = 0; i < actions.size(); ++i) {
    list.push_back(actions[i]);
    list.insert(list.end(), after[i].begin(), after[i].end());
  }
  return list;
}

int peak_gathered(const std::vector<Action>& actions, const GatherPolicy& policy) {
  FullUnits full(policy);
  int peak = 0;
  for (const Action& action : actions) {
    full.take(action);
    peak = std::max(peak, full.num_groups());
  }
  return peak;
}

void check_gathers(const std::vector<Action>& actions, const GatherPolicy& policy) {
  const auto members = used_members(actions, policy);
  FullUnits full(policy);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const Action& action = actions[i];
    const auto fail = [&](const char* what) {
      throw InternalError(fmt::format("gathers: {} of unit {} microbatch {}: {}", action_name(action.kind), action.unit,
                                      action.microbatch, what));
    };
    const bool gathers = action.kind == ActionKind::gather;
    if (!full.take(action)) fail(gathers ? "it is full already" : "it is not full");
    if (is_use(action, policy) && !full.contains(action.unit)) fail("its parameters are shards");
    if (!policy.keep_gathered && full.num_groups() > policy.limit) fail("too many groups are full");
    if (!gathers && action.kind != ActionKind::free) continue;
    const int group = group_of(action.unit, policy);
    const bool goes_on =
        i + 1 < actions.size() && actions[i + 1].kind == action.kind && group_of(actions[i + 1].unit, policy) == group;
    const auto wanted = members.find(group);
    const bool in_part =
        wanted != members.end() && !full.members(group).empty() && full.members(group) != wanted->second;
    if (in_part && !goes_on) fail("its group is full in part");
  }
  if (full.num_groups() > 0) {
    throw InternalError(fmt::format("gathers: unit {} is full at the end", *full.groups().begin()->second.begin()));
  }
}

}  // namespace orthant
