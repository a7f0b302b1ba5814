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
  if (action.kind == ActionKind::backward_weight) {
    return !policy.reads_in_weights.empty() && policy.reads_in_weights.at(static_cast<std::size_t>(action.unit));
  }
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

struct Use {
  int group;
  std::size_t position;  // in the list
};

std::vector<Use> uses_of(const std::vector<Action>& actions, const GatherPolicy& policy) {
  std::vector<Use> uses;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (is_use(actions[i], policy)) uses.push_back({group_of(actions[i].unit, policy), i});
  }
  return uses;
}

std::vector<Use> first_uses(const std::vector<Use>& uses) {
  std::vector<Use> first;
  std::set<int> seen;
  for (const Use& use : uses) {
    if (seen.insert(use.group).second) first.push_back(use);
  }
  return first;
}

// The groups of the uses to come, `limit` at most; moves along the list. A group that is used again before a further
// one is due has uses left when one passes, and stays.
class Window {
 public:
  Window(const std::vector<Use>& uses, int limit) : uses_(uses), limit_(static_cast<std::size_t>(limit)) {}

  // The groups that there was room for, in the order of their uses.
  std::vector<int> widen() {
    std::vector<int> added;
    for (; end_ < uses_.size(); ++end_) {
      const int group = uses_[end_].group;
      if (!left_.contains(group)) {
        if (left_.size() == limit_) break;
        added.push_back(group);
      }
      ++left_[group];
    }
    return added;
  }

  // Past the next use. True when its group leaves.
  bool pass() {
    const auto used = left_.find(uses_[begin_++].group);
    if (--used->second > 0) return false;
    left_.erase(used);
    return true;
  }

 private:
  const std::vector<Use>& uses_;
  std::size_t limit_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::map<int, int> left_;  // group -> its uses in [begin, end)
};

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
  const auto uses = uses_of(actions, policy);
  std::vector<std::vector<Action>> after(actions.size());
  if (policy.keep_gathered) {
    std::map<int, std::size_t> last;
    for (const Use& use : uses) last[use.group] = use.position;
    for (const auto& [group, position] : last) append(after[position], ActionKind::free, members.at(group));
  }
  // What is kept makes no room; it is gathered as far ahead as if every group were used once.
  const auto paced = policy.keep_gathered ? first_uses(uses) : uses;
  Window window(paced, policy.limit);
  const auto gather = [&](std::vector<Action>& place) {
    for (const int group : window.widen()) append(place, ActionKind::gather, members.at(group));
  };
  std::vector<Action> list;
  gather(list);
  for (const Use& use : paced) {
    const bool leaves = window.pass();
    if (leaves && !policy.keep_gathered) append(after[use.position], ActionKind::free, members.at(use.group));
    gather(after[use.position]);
  }
  for (std::size_t i = 0; i < actions.size(); ++i) {
    list.push_back(actions[i]);
    list.insert(list.end(), after[i].begin(), after[i].end());
  }
  return list;
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
