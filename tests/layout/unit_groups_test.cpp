#include "orthant/layout/unit_groups.h"

#include <gtest/gtest.h>

#include "base/error_text.h"
#include "layout/random_graph.h"

namespace orthant {
namespace unit_groups_test {

using Groups = std::vector<int>;
using Kind = UnitGrouping::Kind;

// embed 10, layers 4 each, head 6 (and the embedding's, borrowed), loss none.
GraphSpec small_graph() {
  const auto unit = [](const std::string& name, std::int64_t elements) {
    if (elements == 0) return test::named_unit(name);
    return test::named_unit(name, {test::named_parameter(name + ".weight", {elements})});
  };
  auto graph = test::named_graph("small", {unit("embed", 10), unit("layers.0", 4), unit("layers.1", 4),
                                           unit("layers.2", 4), unit("head", 6), unit("loss", 0)});
  graph.units[4].borrowed = {"embed.weight"};
  return graph;
}

Groups by_size(std::int64_t min_params) {
  return unit_groups(small_graph(), {.kind = Kind::min_params, .min_params = min_params});
}

Groups by_name(std::vector<std::vector<std::string>> names) {
  return unit_groups(small_graph(), {.kind = Kind::names, .names = std::move(names)});
}

std::string refusal(std::vector<std::vector<std::string>> names) {
  return error_text<ConfigError>([&] { by_name(names); });
}

TEST(UnitGroups, EveryUnitIsAloneByDefault) {
  EXPECT_EQ(unit_groups(small_graph(), {}), (Groups{0, 1, 2, 3, 4, 5}));
}

TEST(UnitGroups, NeighboursJoinUntilTheyOwnEnough) {
  EXPECT_EQ(by_size(0), (Groups{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(by_size(8), (Groups{0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(by_size(28), (Groups{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(by_size(1000), (Groups{0, 0, 0, 0, 0, 0}));
}

TEST(UnitGroups, ASmallRestJoinsTheGroupBeforeIt) {
  EXPECT_EQ(by_size(5), (Groups{0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(by_size(4), (Groups{0, 1, 2, 3, 4, 4}));
  EXPECT_EQ(by_size(12), (Groups{0, 0, 1, 1, 1, 1}));
}

TEST(UnitGroups, NoGroupReachesBeyondAStage) {
  const UnitGrouping grouping{.kind = Kind::min_params, .min_params = 8};
  EXPECT_EQ(unit_groups(small_graph(), grouping, {0, 0, 1, 1, 2, 2}), (Groups{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(unit_groups(small_graph(), grouping, {0, 0, 0, 0, 1, 1}), (Groups{0, 1, 1, 1, 2, 2}));
}

TEST(UnitGroups, BorrowedParametersCountForTheirOwner) {
  EXPECT_EQ(by_size(7), (Groups{0, 1, 1, 2, 2, 2}));
}

TEST(UnitGroups, ListsNameUnitsAndBeginnings) {
  EXPECT_EQ(by_name({{"head", "embed"}, {"layers.*"}}), (Groups{0, 1, 1, 1, 0, 2}));
  EXPECT_EQ(by_name({{"layers.2", "layers.1"}}), (Groups{0, 1, 2, 2, 3, 4}));
  EXPECT_EQ(by_name({}), (Groups{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(by_name({{"*"}}), (Groups{0, 0, 0, 0, 0, 0}));
}

TEST(UnitGroups, RefusesUnknownNamesWithTheNearest) {
  const auto text = refusal({{"layer.1"}});
  EXPECT_NE(text.find("parallel.units: no unit of small is named \"layer.1\""), std::string::npos) << text;
  EXPECT_NE(text.find("did you mean \"layers.1\"?"), std::string::npos) << text;
  EXPECT_NE(refusal({{"tower.*"}}).find("no unit of small is named \"tower.*\""), std::string::npos);
}

TEST(UnitGroups, RefusesUnitsNamedTwice) {
  const auto text = refusal({{"layers.1"}, {"layers.*"}});
  EXPECT_NE(text.find("parallel.units names unit \"layers.1\" twice, the second time by \"layers.*\""),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("name each unit once; those left out are groups of their own"), std::string::npos) << text;
  EXPECT_NE(refusal({{"head", "head"}}).find("names unit \"head\" twice"), std::string::npos);
}

TEST(UnitGroups, RefusesANegativeSize) {
  const auto text = error_text<ConfigError>([] { by_size(-1); });
  EXPECT_NE(text.find("parallel.units: min_params is -1"), std::string::npos) << text;
  EXPECT_NE(text.find("set it to at least 0"), std::string::npos) << text;
}

}  // namespace unit_groups_test
}  // namespace orthant
