// The validator against a run with real numbers: on tables that are valid by construction and on thousands of damaged
// ones the verdicts must be the same. The variable ORTHANT_MUTATIONS says how many are damaged: 20000 unless given.
#include <gtest/gtest.h>

#include <cstdlib>

#include "orthant/schedule/validate.h"
#include "schedule/random_cases.h"
#include "schedule/value_run.h"

namespace orthant {
namespace mutation_test {

using test::Case;
using test::describe;
using test::draw;
using test::lower_all;
using test::random_case;
using test::verdict;

bool runs(const std::vector<std::vector<Action>>& lists, const Case& c) {
  return test::ValueRun(lists, c.map, c.graph, c.table.num_microbatches).succeeds();
}

int num_mutations() {
  const char* text = std::getenv("ORTHANT_MUTATIONS");
  return text == nullptr ? 20000 : std::atoi(text);
}

int any_index(const auto& list, std::mt19937& random) {
  return draw(random, static_cast<int>(list.size()));
}

constexpr int kDamages = 6;

// Damages lists of anything: swaps neighbours, swaps anywhere, drops, doubles or moves one.
template <class Item>
void damage(std::vector<std::vector<Item>>& lists, std::mt19937& random, int kind) {
  auto& list = lists[static_cast<std::size_t>(any_index(lists, random))];
  auto& other = lists[static_cast<std::size_t>(any_index(lists, random))];
  if (list.empty() || other.empty()) return;
  const auto place = list.begin() + any_index(list, random);
  if (kind == 0 && place + 1 != list.end()) std::iter_swap(place, place + 1);
  if (kind == 1) std::iter_swap(place, list.begin() + any_index(list, random));
  if (kind == 2) std::iter_swap(place, other.begin() + any_index(other, random));
  if (kind == 3) list.erase(place);
  if (kind == 4) list.insert(list.begin() + any_index(list, random), Item(*place));
  if (kind == 5) {
    const Item moved = *place;
    list.erase(place);
    other.insert(other.begin() + draw(random, static_cast<int>(other.size()) + 1), moved);
  }
}

void damage_table(StageTable& table, std::mt19937& random) {
  const int kind = draw(random, 12);
  if (kind < kDamages) return damage(table.actions, random, kind);
  if (kind < 8) return damage(table.actions, random, 0);
  auto& list = table.actions[static_cast<std::size_t>(any_index(table.actions, random))];
  if (list.empty()) return;
  StageAction& action = list[static_cast<std::size_t>(any_index(list, random))];
  if (kind == 8) action.kind = static_cast<StageKind>(draw(random, 4));
  if (kind == 9) action.microbatch = draw(random, table.num_microbatches + 1);
  if (kind == 10) action.stage = draw(random, table.num_stages + 1);
  if (kind == 11 && action.kind == StageKind::BW) {  // B here, W somewhere: valid when it is late enough
    action.kind = StageKind::B;
    const StageAction weights{action.stage, StageKind::W, action.microbatch};
    list.insert(list.begin() + any_index(list, random) + 1, weights);
  }
}

void damage_lists(std::vector<std::vector<Action>>& lists, const Case& c, std::mt19937& random) {
  const int kind = draw(random, 11);
  if (kind < kDamages) return damage(lists, random, kind);
  auto& list = lists[static_cast<std::size_t>(any_index(lists, random))];
  if (list.empty()) return;
  Action& action = list[static_cast<std::size_t>(any_index(list, random))];
  if (kind == 6 && action.microbatch >= 0) action.microbatch = draw(random, c.table.num_microbatches + 1);
  if (kind == 7 && action.peer >= 0) action.peer = draw(random, static_cast<int>(lists.size()) + 1);
  if (kind == 8 && action.unit >= 0) action.unit = any_index(c.graph.units, random);
  if (kind == 9 && action.value >= 0) action.value = any_index(c.graph.values, random);
  if (kind == 10 && action.consumer >= 0) action.consumer = any_index(c.graph.units, random);
}

// A run of the table's lists; a stage that is not there cannot even be lowered.
bool table_runs(const Case& c) {
  for (const auto& actions : c.table.actions) {
    for (const StageAction& action : actions) {
      if (action.stage >= c.map.num_stages()) return false;
    }
  }
  return runs(lower_all(c), c);
}

TEST(Validate, AcceptsWhatIsValidByConstructionAndItRuns) {
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    const Case c = random_case(random);
    ASSERT_EQ(verdict([&] { validate(c.table, c.map, c.graph); }), "") << describe(c);
    const auto lists = lower_all(c);
    ASSERT_EQ(verdict([&] { validate_actions(lists, c.graph, c.table.num_microbatches); }), "") << describe(c);
    ASSERT_TRUE(runs(lists, c)) << describe(c);
  }
}

TEST(Validate, JudgesDamagedTablesAsARunDoes) {
  std::mt19937 random(12);
  const int count = num_mutations() / 4 * 3;
  int valid = 0;
  int deadlocks = 0;
  for (int i = 0; i < count; ++i) {
    Case c = random_case(random);
    for (int times = 1 + draw(random, 2); times > 0; --times) damage_table(c.table, random);
    const std::string fault = verdict([&] { validate(c.table, c.map, c.graph); });
    ASSERT_EQ(fault.empty(), table_runs(c)) << "case " << i << ": " << fault << "\n" << describe(c);
    if (fault.empty()) ++valid;
    if (fault.starts_with("deadlock")) ++deadlocks;
  }
  EXPECT_GT(valid, count / 10);
  EXPECT_LT(valid, count * 3 / 4);
  EXPECT_GT(deadlocks, count / 400);
}

// Lists know no map: a unit belongs to the pp coordinate that first computes it.
StageMap homes_in(const std::vector<std::vector<Action>>& lists, const Case& c) {
  StageMap map;
  for (int unit = 0; unit < static_cast<int>(c.graph.units.size()); ++unit) {
    map.units.push_back({unit});
    int home = -1;
    for (std::size_t pp_coordinate = lists.size(); pp_coordinate-- > 0;) {
      for (const Action& action : lists[pp_coordinate]) {
        const bool computes = action.kind != ActionKind::reduce && action.unit == unit;
        if (computes) home = static_cast<int>(pp_coordinate);
      }
    }
    map.pp_coordinates.push_back(home);
  }
  return map;
}

TEST(Validate, JudgesDamagedListsAsARunDoes) {
  std::mt19937 random(13);
  const int count = num_mutations() / 4;
  int valid = 0;
  for (int i = 0; i < count; ++i) {
    Case c = random_case(random);
    auto lists = lower_all(c);
    damage_lists(lists, c, random);
    c.map = homes_in(lists, c);
    const std::string fault = verdict([&] { validate_actions(lists, c.graph, c.table.num_microbatches); });
    ASSERT_EQ(fault.empty(), runs(lists, c)) << "case " << i << ": " << fault << "\n" << describe(c);
    if (fault.empty()) ++valid;
  }
  EXPECT_GT(valid, count / 20);
  EXPECT_LT(valid, count * 4 / 5);
}

}  // namespace mutation_test
}  // namespace orthant
