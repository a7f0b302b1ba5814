// Two layouts that users know by formulas: order pp,tp,dp (a context with previous and next stages, seed 000) and order
// dp,pp,tp (a process group manager, seed 001). The seeds' own formulas are written out here as oracles.
#include <gtest/gtest.h>

#include <algorithm>

#include "orthant/mesh/mesh.h"

namespace orthant {
namespace seed_layouts_test {

using Groups = std::vector<RankList>;

struct Degrees3 {
  int pp, tp, dp;
  int pipeline_outermost(int p, int t, int d) const { return p * (tp * dp) + t * dp + d; }
  int data_outermost(int d, int p, int t) const { return d * (pp * tp) + p * tp + t; }
  Mesh mesh(const char* order) const { return Mesh({{Axis::pp, pp}, {Axis::tp, tp}, {Axis::dp, dp}}, order); }
};

Groups by_first_rank(Groups groups) {
  std::ranges::sort(groups, {}, [](const RankList& group) { return group.front(); });
  return groups;
}

// One group per pair of outer and middle index; its members come from the inner index.
template <class RankOf>
Groups all_groups(int outer, int middle, int inner, const RankOf& rank_of) {
  Groups groups;
  for (int i = 0; i < outer; ++i) {
    for (int j = 0; j < middle; ++j) {
      RankList& ranks = groups.emplace_back();
      for (int k = 0; k < inner; ++k) ranks.push_back(rank_of(i, j, k));
    }
  }
  return by_first_rank(groups);
}

class SeedLayouts : public testing::TestWithParam<Degrees3> {};

INSTANTIATE_TEST_SUITE_P(Worlds, SeedLayouts,
                         testing::Values(Degrees3{2, 2, 2}, Degrees3{4, 1, 2}, Degrees3{1, 8, 1}, Degrees3{2, 2, 4},
                                         Degrees3{4, 2, 2}, Degrees3{16, 1, 1}, Degrees3{4, 4, 4}, Degrees3{2, 8, 4},
                                         Degrees3{8, 4, 2}, Degrees3{1, 1, 64}, Degrees3{1, 1, 1}, Degrees3{3, 5, 2}),
                         [](const auto& info) {
                           const Degrees3& d = info.param;
                           return "Pp" + std::to_string(d.pp) + "Tp" + std::to_string(d.tp) + "Dp" +
                                  std::to_string(d.dp);
                         });

TEST_P(SeedLayouts, PipelineTensorDataCoordinates) {
  const auto [pp, tp, dp] = GetParam();
  const Mesh mesh = GetParam().mesh("pp,tp,dp");
  ASSERT_EQ(mesh.world_size(), pp * tp * dp);
  EXPECT_EQ(mesh, Mesh({{Axis::pp, pp}, {Axis::tp, tp}}, "pp,tp,dp").with_inferred(Axis::dp, pp * tp * dp));
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const Coordinate place = mesh.coordinate(rank);
    EXPECT_EQ(place[Axis::pp], rank / (tp * dp));
    EXPECT_EQ(place[Axis::tp], rank / dp % tp);
    EXPECT_EQ(place[Axis::dp], rank % dp);
  }
}

TEST_P(SeedLayouts, PipelineTensorDataGroups) {
  const Degrees3 degrees = GetParam();
  const auto& [pp, tp, dp] = degrees;
  const Mesh mesh = degrees.mesh("pp,tp,dp");
  EXPECT_EQ(mesh.groups(Axis::dp),
            all_groups(pp, tp, dp, [&](int p, int t, int d) { return degrees.pipeline_outermost(p, t, d); }));
  EXPECT_EQ(mesh.groups(Axis::pp),
            all_groups(tp, dp, pp, [&](int t, int d, int p) { return degrees.pipeline_outermost(p, t, d); }));
  EXPECT_EQ(mesh.groups(Axis::tp),
            all_groups(pp, dp, tp, [&](int p, int d, int t) { return degrees.pipeline_outermost(p, t, d); }));
}

TEST_P(SeedLayouts, PipelineTensorDataPreviousAndNextStage) {
  const auto [pp, tp, dp] = GetParam();
  const Mesh mesh = GetParam().mesh("pp,tp,dp");
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    const int stage = rank / (tp * dp);
    const auto previous = stage == 0 ? std::nullopt : std::optional(rank - tp * dp);
    const auto next = stage == pp - 1 ? std::nullopt : std::optional(rank + tp * dp);
    EXPECT_EQ(mesh.neighbour(rank, Axis::pp, -1), previous);
    EXPECT_EQ(mesh.neighbour(rank, Axis::pp, +1), next);
  }
}

TEST_P(SeedLayouts, DataPipelineTensorCoordinates) {
  const auto [pp, tp, dp] = GetParam();
  const Mesh mesh = GetParam().mesh("dp,pp,tp");
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    Coordinate place;
    place[Axis::tp] = rank % tp;
    place[Axis::pp] = rank / tp % pp;
    place[Axis::dp] = rank / (tp * pp);
    EXPECT_EQ(mesh.coordinate(rank), place);
    EXPECT_EQ(mesh.rank_of(place), place[Axis::dp] * (pp * tp) + place[Axis::pp] * tp + place[Axis::tp]);
  }
}

TEST_P(SeedLayouts, DataPipelineTensorGroups) {
  const Degrees3 degrees = GetParam();
  const auto& [pp, tp, dp] = degrees;
  const Mesh mesh = degrees.mesh("dp,pp,tp");
  Groups consecutive;
  for (int first = 0; first < mesh.world_size(); first += tp) {
    RankList& ranks = consecutive.emplace_back();
    for (int rank = first; rank < first + tp; ++rank) ranks.push_back(rank);
  }
  EXPECT_EQ(mesh.groups(Axis::tp), consecutive);
  EXPECT_EQ(mesh.groups(Axis::pp),
            all_groups(dp, tp, pp, [&](int d, int t, int p) { return degrees.data_outermost(d, p, t); }));
  EXPECT_EQ(mesh.groups(Axis::dp),
            all_groups(pp, tp, dp, [&](int p, int t, int d) { return degrees.data_outermost(d, p, t); }));
}

}  // namespace seed_layouts_test
}  // namespace orthant
