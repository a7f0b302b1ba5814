// Random graphs, stages, schedules, groups and bounds, with two oracles that look at nothing but the order of uses: the
// next different groups, and a store of `limit` places from which the group that was used longest ago is pushed out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "orthant/schedule/gathers.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "schedule/peak_gathered.h"
#include "schedule/random_tables.h"

namespace orthant {
namespace gathers_property_test {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

struct Case {
  std::vector<Action> actions;
  GatherPolicy policy;
  std::set<int> on_list;  // units

  bool uses(const Action& action) const {
    switch (action.kind) {
      case ActionKind::forward:
        return policy.sharded[at(action.unit)];
      case ActionKind::backward:
      case ActionKind::backward_input:
        return policy.sharded[at(action.unit)] && policy.reads_in_backward[at(action.unit)];
      default:
        return false;
    }
  }
  int group(int unit) const { return policy.groups[at(unit)]; }
  std::vector<int> members(int wanted) const {
    std::vector<int> units;
    for (const int unit : on_list) {
      if (policy.sharded[at(unit)] && group(unit) == wanted) units.push_back(unit);
    }
    return units;
  }
};

StageTable random_table(const GraphSpec& graph, StageMap& map, int microbatches, std::mt19937& random) {
  const int stages =
      1 + test::draw(random, std::min(3, static_cast<int>(graph.units.size()) - 1));  // the loss is no stage alone
  switch (test::draw(random, 4)) {
    case 0:
      map = even_stages(graph, 1);
      return one_stage(microbatches);
    case 1:
      map = even_stages(graph, stages);
      return gpipe(stages, microbatches);
    case 2:
      map = even_stages(graph, stages);
      return one_forward_one_backward(stages, microbatches);
    default:
      map = test::random_stages(graph, random);
      return test::TableDraw(graph, map, microbatches, 50, random).table();
  }
}

Case random_case(std::mt19937& random) {
  const GraphSpec graph = test::random_graph(random);
  StageMap map;
  const StageTable table = random_table(graph, map, 1 + test::draw(random, 4), random);
  Case one{.actions = lower(table, map, graph, test::draw(random, map.pp_degree())), .policy = {}, .on_list = {}};
  const int num_groups = 1 + test::draw(random, static_cast<int>(graph.units.size()));
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    one.policy.sharded.push_back(test::draw(random, 5) > 0);
    one.policy.reads_in_backward.push_back(test::draw(random, 4) > 0);
    one.policy.groups.push_back(test::draw(random, num_groups));
  }
  one.policy.limit = 1 + test::draw(random, 4);
  one.policy.keep_gathered = test::draw(random, 4) == 0;
  for (const Action& action : one.actions) {
    if (action.kind == ActionKind::forward) one.on_list.insert(action.unit);
  }
  return one;
}

// The groups that a store of `limit` places, or of enough when all is kept, lacks at their uses. It looks back where
// the pass looks ahead: between two uses of a group lie the same others either way.
std::vector<int> expected_order(const Case& one) {
  std::vector<int> order;
  std::vector<int> recent;  // the last used first
  for (const Action& action : one.actions) {
    if (!one.uses(action)) continue;
    const int group = one.group(action.unit);
    if (std::erase(recent, group) == 0) order.push_back(group);
    recent.insert(recent.begin(), group);
    if (!one.policy.keep_gathered && static_cast<int>(recent.size()) > one.policy.limit) recent.pop_back();
  }
  return order;
}

// The groups of the uses from a place of the list on, `limit` different ones at most.
std::set<int> next_groups(const Case& one, const std::vector<Action>& list, std::size_t from) {
  std::set<int> groups;
  for (std::size_t i = from; i < list.size(); ++i) {
    if (!one.uses(list[i])) continue;
    if (static_cast<int>(groups.size()) == one.policy.limit && !groups.contains(one.group(list[i].unit))) break;
    groups.insert(one.group(list[i].unit));
  }
  return groups;
}

// Runs of one kind over one group: gathers or frees, in list order. Fails where a run is not the whole group ascending.
std::vector<int> runs(const Case& one, const std::vector<Action>& list, ActionKind kind) {
  std::vector<int> groups;
  for (std::size_t i = 0; i < list.size();) {
    if (list[i].kind != kind) {
      ++i;
      continue;
    }
    groups.push_back(one.group(list[i].unit));
    for (const int unit : one.members(groups.back())) {
      EXPECT_TRUE(i < list.size() && list[i].kind == kind && list[i].unit == unit)
          << "unit " << unit << " is not next in its group's run at " << i;
      ++i;
    }
  }
  return groups;
}

TEST(GathersProperty, EveryListIsCoveredBoundedAndOrdered) {
  std::mt19937 random(71);
  for (int trial = 0; trial < 600; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    const Case one = random_case(random);
    const auto list = with_gathers(one.actions, one.policy);
    ASSERT_NO_THROW(check_gathers(list, one.policy));
    std::vector<Action> rest;
    std::set<int> full;
    for (const Action& action : list) {
      if (action.kind == ActionKind::gather) {
        EXPECT_TRUE(full.insert(action.unit).second);
      } else if (action.kind == ActionKind::free) {
        EXPECT_EQ(full.erase(action.unit), 1U);
      } else {
        rest.push_back(action);
        EXPECT_TRUE(!one.uses(action) || full.contains(action.unit)) << "unit " << action.unit << " is used as shards";
      }
    }
    EXPECT_TRUE(full.empty());
    EXPECT_EQ(rest, one.actions);
    EXPECT_EQ(runs(one, list, ActionKind::gather), expected_order(one));
    EXPECT_EQ(runs(one, list, ActionKind::free).size(), expected_order(one).size());
    EXPECT_TRUE(one.policy.keep_gathered || test::peak_gathered(list, one.policy) <= one.policy.limit);
  }
}

// Whatever runs, the next groups are full and no others.
TEST(GathersProperty, FullAreTheGroupsOfTheNextUses) {
  std::mt19937 random(74);
  for (int trial = 0; trial < 300; ++trial) {
    Case one = random_case(random);
    one.policy.keep_gathered = false;
    SCOPED_TRACE(fmt::format("trial {}, limit {}", trial, one.policy.limit));
    const auto list = with_gathers(one.actions, one.policy);
    std::multiset<int> full;  // a group per full member
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind == ActionKind::gather) {
        full.insert(one.group(list[i].unit));
      } else if (list[i].kind == ActionKind::free) {
        full.erase(full.find(one.group(list[i].unit)));
      } else {
        ASSERT_EQ(std::set<int>(full.begin(), full.end()), next_groups(one, list, i)) << "at " << i;
      }
    }
  }
}

// No group gives back the room that its own next gather takes: between the two, another is gathered.
TEST(GathersProperty, NoGroupIsGatheredRightAfterItsOwnFree) {
  std::mt19937 random(77);
  int again = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const Case one = random_case(random);
    SCOPED_TRACE(fmt::format("trial {}, limit {}", trial, one.policy.limit));
    std::set<int> freed;   // since another group was gathered
    std::set<int> before;  // earlier
    for (const Action& action : with_gathers(one.actions, one.policy)) {
      const int group = action.unit < 0 ? -1 : one.group(action.unit);
      if (action.kind == ActionKind::free) freed.insert(group);
      if (action.kind != ActionKind::gather) continue;
      EXPECT_FALSE(freed.contains(group)) << "unit " << action.unit;
      again += before.contains(group) ? 1 : 0;
      before.merge(freed);
      freed.clear();
    }
  }
  EXPECT_GT(again, 1000);
}

// Before the free that precedes a gather there was no room.
TEST(GathersProperty, GathersComeAsEarlyAsRoomAllows) {
  std::mt19937 random(72);
  int waiting = 0;
  for (int trial = 0; trial < 600; ++trial) {
    Case one = random_case(random);
    one.policy.keep_gathered = false;
    SCOPED_TRACE(fmt::format("trial {}, limit {}", trial, one.policy.limit));
    const auto list = with_gathers(one.actions, one.policy);
    std::map<int, int> full;         // group -> full members
    std::map<int, int> before_free;  // as of the last run of frees
    for (std::size_t i = 0; i < list.size(); ++i) {
      const ActionKind kind = list[i].kind;
      const ActionKind previous = i == 0 ? ActionKind::forward : list[i - 1].kind;
      if (kind == ActionKind::free && previous != ActionKind::free) before_free = full;
      if (kind == ActionKind::gather && i > 0 && previous != ActionKind::gather) {
        ++waiting;
        EXPECT_EQ(previous, ActionKind::free) << "the gather at " << i << " waits for nothing";
        EXPECT_EQ(static_cast<int>(before_free.size()), one.policy.limit)
            << "the gather at " << i << " could have come earlier";
      }
      if (kind == ActionKind::gather) ++full[one.group(list[i].unit)];
      if (kind == ActionKind::free && --full[one.group(list[i].unit)] == 0) full.erase(one.group(list[i].unit));
    }
  }
  EXPECT_GT(waiting, 1000);
}

TEST(GathersProperty, OneLimitPerUseNeverNeedsMoreThanTheGroupInUse) {
  std::mt19937 random(73);
  for (int trial = 0; trial < 200; ++trial) {
    SCOPED_TRACE(fmt::format("trial {}", trial));
    Case one = random_case(random);
    one.policy.keep_gathered = false;
    one.policy.limit = 1;
    EXPECT_EQ(test::peak_gathered(with_gathers(one.actions, one.policy), one.policy),
              expected_order(one).empty() ? 0 : 1);
  }
}

}  // namespace gathers_property_test
}  // namespace orthant
