#include "orthant/base/name_runs.h"

#include <gtest/gtest.h>

namespace orthant {
namespace name_runs_test {

using Names = std::vector<std::string>;

std::vector<NameRun> runs(const Names& names) {
  return name_runs(names, [](std::size_t, std::size_t) { return true; });
}

TEST(NameRuns, JoinsNamesWhoseNumberCountsUp) {
  EXPECT_EQ(runs({}), std::vector<NameRun>{});
  EXPECT_EQ(runs({"embed", "layers.0", "layers.1", "layers.2", "norm"}),
            (std::vector<NameRun>{{0, 1, "embed"}, {1, 3, "layers.0-2"}, {4, 1, "norm"}}));
  EXPECT_EQ(runs({"a.9.x", "a.10.x", "a.12.x"}), (std::vector<NameRun>{{0, 2, "a.9-10.x"}, {2, 1, "a.12.x"}}));
  EXPECT_EQ(runs({"hidden.1", "hidden.1", "hidden.0"}),
            (std::vector<NameRun>{{0, 1, "hidden.1"}, {1, 1, "hidden.1"}, {2, 1, "hidden.0"}}));
}

TEST(NameRuns, OneNumberCountsInARun) {
  EXPECT_EQ(runs({"t.0.l.0", "t.0.l.1", "t.1.l.0"}), (std::vector<NameRun>{{0, 2, "t.0.l.0-1"}, {2, 1, "t.1.l.0"}}));
  EXPECT_EQ(runs({"0.0", "1.0", "1.1"}), (std::vector<NameRun>{{0, 2, "0-1.0"}, {2, 1, "1.1"}}));
}

TEST(NameRuns, TakesOnlyWholePartsForNumbers) {
  EXPECT_EQ(runs({"w1", "w2"}).size(), 2U);
  EXPECT_EQ(runs({"w.-1", "w.0"}).size(), 2U);
  EXPECT_EQ(runs({"w.99999999999999999999", "w.99999999999999999999"}).size(), 2U);
}

TEST(NameRuns, WhatIsShownMustBeAlike) {
  const std::vector<int> figures = {7, 7, 8, 7};
  const Names names = {"l.0", "l.1", "l.2", "l.3"};
  const auto found = name_runs(names, [&](std::size_t a, std::size_t b) { return figures[a] == figures[b]; });
  EXPECT_EQ(found, (std::vector<NameRun>{{0, 2, "l.0-1"}, {2, 1, "l.2"}, {3, 1, "l.3"}}));
}

}  // namespace name_runs_test
}  // namespace orthant
