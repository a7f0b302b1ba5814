// The validator against a run with real numbers: on tables that are valid by construction and on thousands of damaged
// ones the verdicts must be the same.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/validate.h"
#include "schedule/graphs.h"
#include "schedule/random_tables.h"
#include "schedule/value_run.h"

namespace orthant {
namespace {

using test::draw;

struct Case {
  GraphSpec graph;
  StageMap map;
  StageTable table;
};

std::vector<std::vector<Action>> lower_all(const Case& c) {
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < static_cast<int>(c.table.ranks.size()); ++rank) {
    lists.push_back(lower(c.table, c.map, c.graph, rank));
  }
  return lists;
}

// The error's text; empty when the schedule is found valid.
template <class Check>
std::string verdict(const Check& check) {
  try {
    check();
    return "";
  } catch (const ConfigError& error) {
    return error.message();
  }
}

bool runs(const std::vector<std::vector<Action>>& lists, const Case& c) {
  return test::ValueRun(lists, c.map, c.graph, c.table.num_microbatches).succeeds();
}

std::string describe(const Case& c) {
  std::string text = to_text(c.table);
  for (int s = 0; s < c.map.num_stages(); ++s) {
    text += fmt::format("stage {} on rank {}:", s, c.map.rank[static_cast<std::size_t>(s)]);
    for (const int unit : c.map.units[static_cast<std::size_t>(s)]) {
      text += " " + c.graph.units[static_cast<std::size_t>(unit)].name;
    }
    text += "\n";
  }
  return text;
}

Case random_case(std::mt19937& random) {
  Case c;
  const int microbatches = 1 + draw(random, 4);
  const int kind = draw(random, 9);
  const auto named = [&](GraphSpec graph, int stages) {
    c.graph = std::move(graph);
    c.map = even_stages(c.graph, stages);
    const int schedule = draw(random, 3);
    c.table = schedule == 0   ? gpipe(stages, microbatches)
              : schedule == 1 ? one_forward_one_backward(stages, microbatches)
                              : forward_only(stages, microbatches);
    if (draw(random, 4) == 0) {
      c.table = on_one_rank(c.table);
      c.map = on_one_rank(c.map);
    }
  };
  if (kind == 0) named(test::chain(3, true), 1 + draw(random, 4));
  if (kind == 1) named(test::fan_out(), 1 + draw(random, 2));
  if (kind == 2) named(test::branches(), 1 + draw(random, 5));
  if (kind == 3) named(test::skips(), 1 + draw(random, 5));
  if (kind >= 4) {
    c.graph = kind == 4   ? test::branches()
              : kind == 5 ? test::skips()
              : kind == 6 ? test::fan_out()
                          : test::random_graph(random);
    c.map = test::random_stages(c.graph, random);
    c.table = test::TableDraw(c.graph, c.map, microbatches, draw(random, 101), random).table();
  }
  return c;
}

int any_index(const auto& list, std::mt19937& random) {
  return draw(random, static_cast<int>(list.size()));
}

// Damages lists of anything: swaps neighbours, swaps anywhere, drops or doubles one.
template <class Item>
void damage(std::vector<std::vector<Item>>& ranks, std::mt19937& random, int kind) {
  auto& list = ranks[static_cast<std::size_t>(any_index(ranks, random))];
  auto& other = ranks[static_cast<std::size_t>(any_index(ranks, random))];
  if (list.empty() || other.empty()) return;
  const auto place = list.begin() + any_index(list, random);
  if (kind == 0 && place + 1 != list.end()) std::iter_swap(place, place + 1);
  if (kind == 1) std::iter_swap(place, list.begin() + any_index(list, random));
  if (kind == 2) std::iter_swap(place, other.begin() + any_index(other, random));
  if (kind == 3) list.erase(place);
  if (kind == 4) list.insert(list.begin() + any_index(list, random), Item(*place));
}

void damage_table(StageTable& table, std::mt19937& random) {
  const int kind = draw(random, 10);
  if (kind < 5) return damage(table.ranks, random, kind);
  if (kind == 5 || kind == 6) return damage(table.ranks, random, 0);
  auto& list = table.ranks[static_cast<std::size_t>(any_index(table.ranks, random))];
  if (list.empty()) return;
  StageAction& action = list[static_cast<std::size_t>(any_index(list, random))];
  if (kind == 7) action.kind = static_cast<StageKind>(draw(random, 4));
  if (kind == 8) action.microbatch = draw(random, table.num_microbatches);
  if (kind == 9 && action.kind == StageKind::BW) {  // B here, W somewhere: valid when it is late enough
    action.kind = StageKind::B;
    const StageAction weights{action.stage, StageKind::W, action.microbatch};
    list.insert(list.begin() + any_index(list, random) + 1, weights);
  }
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
  int valid = 0;
  int deadlocks = 0;
  for (int i = 0; i < 20000; ++i) {
    Case c = random_case(random);
    for (int times = 1 + draw(random, 2); times > 0; --times) damage_table(c.table, random);
    const std::string fault = verdict([&] { validate(c.table, c.map, c.graph); });
    ASSERT_EQ(fault.empty(), runs(lower_all(c), c)) << "case " << i << ": " << fault << "\n" << describe(c);
    if (fault.empty()) ++valid;
    if (fault.starts_with("deadlock")) ++deadlocks;
  }
  EXPECT_GT(valid, 3000);
  EXPECT_LT(valid, 15000);
  EXPECT_GT(deadlocks, 50);
}

TEST(Validate, JudgesDamagedListsAsARunDoes) {
  std::mt19937 random(13);
  int valid = 0;
  for (int i = 0; i < 5000; ++i) {
    const Case c = random_case(random);
    auto lists = lower_all(c);
    damage(lists, random, draw(random, 5));
    const std::string fault = verdict([&] { validate_actions(lists, c.graph, c.table.num_microbatches); });
    ASSERT_EQ(fault.empty(), runs(lists, c)) << "case " << i << ": " << fault << "\n" << describe(c);
    if (fault.empty()) ++valid;
  }
  EXPECT_GT(valid, 300);
  EXPECT_LT(valid, 4000);
}

}  // namespace
}  // namespace orthant
