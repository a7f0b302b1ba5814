// The most groups that are full at one time in a list with gathers and frees.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

#include "orthant/schedule/gathers.h"

namespace orthant::test {

inline int peak_gathered(const std::vector<Action>& actions, const GatherPolicy& policy) {
  std::map<int, int> full;  // units of each group that has some
  std::size_t peak = 0;
  for (const Action& action : actions) {
    if (action.kind != ActionKind::gather && action.kind != ActionKind::free) continue;  // others may have no unit
    const int group = policy.groups.empty() ? action.unit : policy.groups[static_cast<std::size_t>(action.unit)];
    if (action.kind == ActionKind::gather) ++full[group];
    if (action.kind == ActionKind::free && --full[group] == 0) full.erase(group);
    peak = std::max(peak, full.size());
  }
  return static_cast<int>(peak);
}

}  // namespace orthant::test
