// Which buffers a rank of a pipeline holds, which of its units reduces them, and which stage counts them.
#include "orthant/layout/unit_buffers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "layout/random_graph.h"

namespace orthant {
namespace unit_buffers_test {

using Places = std::vector<int>;

// embed, lower, middle, upper, head, loss; embed.weight is tied to middle and head, lower.scale to upper.
GraphSpec tied_graph() {
  using test::named_parameter;
  using test::named_unit;
  auto graph = test::named_graph(
      "tied", {named_unit("embed", {named_parameter("embed.weight", {7, 5}), named_parameter("embed.bias", {3})}),
               named_unit("lower", {named_parameter("lower.weight", {5, 5}), named_parameter("lower.scale", {5})}),
               named_unit("middle", {named_parameter("middle.weight", {5, 5})}),
               named_unit("upper", {named_parameter("upper.weight", {5, 5})}),
               named_unit("head", {named_parameter("head.bias", {7})}), named_unit("loss")});
  graph.units[2].borrowed = {"embed.weight"};
  graph.units[3].borrowed = {"lower.scale"};
  graph.units[4].borrowed = {"embed.weight"};
  return graph;
}

Coordinate at_pp(int pp) {
  Coordinate coordinate;
  coordinate[Axis::pp] = pp;
  return coordinate;
}

UnitBuffers held_at(const GraphSpec& graph, int pp, const Places& unit_pp_coordinates) {
  const Mesh mesh(Degrees{{Axis::pp, 1 + std::ranges::max(unit_pp_coordinates)}});
  return unit_buffers(graph, mesh, at_pp(pp), {}, unit_pp_coordinates);
}

// The place of the buffer with that parameter; -1 when the rank has none.
int place_of(const UnitBuffers& buffers, const std::string& parameter) {
  const auto found =
      std::ranges::find_if(buffers.all, [&](const FlatBuffer& buffer) { return buffer.find(parameter) != nullptr; });
  return found == buffers.all.end() ? -1 : static_cast<int>(found - buffers.all.begin());
}

bool has(const std::vector<int>& list, int item) {
  return std::ranges::find(list, item) != list.end();
}

TEST(UnitBuffers, ARankHoldsWhatItsOwnUnitsUse) {
  const auto graph = tied_graph();
  const Places ranks = {0, 0, 1, 1, 2, 2};
  const auto first = held_at(graph, 0, ranks);
  const auto second = held_at(graph, 1, ranks);
  const auto third = held_at(graph, 2, ranks);
  EXPECT_EQ(place_of(first, "middle.weight"), -1);
  EXPECT_EQ(place_of(first, "head.bias"), -1);
  EXPECT_EQ(place_of(third, "lower.scale"), -1);
  EXPECT_EQ(first[place_of(first, "embed.weight")].users, (Places{0}));
  EXPECT_EQ(second[place_of(second, "embed.weight")].users, (Places{2}));
  EXPECT_EQ(third[place_of(third, "embed.weight")].users, (Places{4}));
  EXPECT_EQ(second[place_of(second, "lower.scale")].users, (Places{3}));
  // The owner's name and layout, wherever it is.
  EXPECT_EQ(third[place_of(third, "embed.weight")].owner, 0);
  EXPECT_EQ(third[place_of(third, "embed.weight")].size, first[place_of(first, "embed.weight")].size);
}

TEST(UnitBuffers, TheLowestUserOfARankHoldsATiedOne) {
  const auto graph = tied_graph();
  const auto buffers = held_at(graph, 1, {0, 0, 1, 1, 1, 1});
  const int embed = place_of(buffers, "embed.weight");
  const int scale = place_of(buffers, "lower.scale");
  EXPECT_EQ(buffers[embed].users, (Places{2, 4}));
  EXPECT_TRUE(has(buffers.held[2], embed));
  EXPECT_FALSE(has(buffers.held[4], embed));
  EXPECT_TRUE(has(buffers.used[2], embed));
  EXPECT_TRUE(has(buffers.used[4], embed));
  EXPECT_TRUE(has(buffers.held[3], scale));
  for (const int other : {0, 1}) {
    EXPECT_TRUE(buffers.used[static_cast<std::size_t>(other)].empty());
    EXPECT_TRUE(buffers.held[static_cast<std::size_t>(other)].empty());
  }
}

TEST(UnitBuffers, OwnersAreThePlacesOfAllUsersAndTheFirstUsersAnswers) {
  const auto graph = tied_graph();
  // The owner is not on the first coordinate.
  const Places ranks = {2, 1, 0, 1, 0, 0};
  for (int pp = 0; pp < 3; ++pp) {
    const auto buffers = held_at(graph, pp, ranks);
    const int embed = place_of(buffers, "embed.weight");
    if (pp == 1) {
      EXPECT_EQ(embed, -1);
      const auto scale = static_cast<std::size_t>(place_of(buffers, "lower.scale"));
      EXPECT_EQ(buffers.pp_users[scale], (Places{1}));
      EXPECT_TRUE(buffers.owner_here[scale]);
      continue;
    }
    EXPECT_EQ(buffers.pp_users[static_cast<std::size_t>(embed)], (Places{0, 2}));
    EXPECT_EQ(buffers.owner_here[static_cast<std::size_t>(embed)], pp == 2);
  }
}

TEST(UnitBuffers, WithoutPlacesAllIsOnOneStage) {
  const auto graph = tied_graph();
  const auto whole = unit_buffers(graph, Mesh(), Coordinate(), {});
  const auto resolved = held_at(graph, 0, Places(graph.units.size(), 0));
  ASSERT_EQ(whole.all.size(), resolved.all.size());
  for (std::size_t b = 0; b < whole.all.size(); ++b) {
    EXPECT_EQ(whole.all[b].users, resolved.all[b].users);
    EXPECT_EQ(whole.pp_users[b], (Places{0}));
    EXPECT_TRUE(whole.owner_here[b]);
  }
  EXPECT_EQ(whole.held, resolved.held);
  EXPECT_EQ(whole.used, resolved.used);
}

TEST(UnitBuffers, OwnerSetsAreThoseOfTrainableTiedParametersAlone) {
  auto graph = tied_graph();
  using Sets = std::vector<std::vector<int>>;
  EXPECT_EQ(tied_user_sets(graph, {0, 0, 1, 1, 2, 2}), (Sets{{0, 1}, {0, 1, 2}}));
  EXPECT_EQ(tied_user_sets(graph, {0, 0, 0, 0, 0, 0}), Sets());
  EXPECT_EQ(tied_user_sets(graph, {0, 1, 0, 1, 1, 1}), (Sets{{0, 1}}));
  EXPECT_EQ(tied_user_sets(graph, {}), Sets());
  graph.units[0].parameters[0].trainable = false;
  EXPECT_EQ(tied_user_sets(graph, {0, 0, 1, 1, 2, 2}), (Sets{{0, 1}}));
}

// Random models on random places: every parameter is where its users are, is counted by one stage, and each rank that
// has it reduces it by one unit.
TEST(UnitBuffers, EveryParameterOfRandomModelsIsCountedOnce) {
  test::RandomGraphs random(911);
  for (int trial = 0; trial < 60; ++trial) {
    const int pp = 1 + random.below(4);
    const auto graph = random.graph({1});
    Places ranks;
    for (std::size_t u = 0; u < graph.units.size(); ++u) ranks.push_back(random.below(pp));
    const Mesh mesh(Degrees{{Axis::pp, pp}});
    std::vector<UnitBuffers> found;
    for (int at = 0; at < pp; ++at) found.push_back(unit_buffers(graph, mesh, at_pp(at), {}, ranks));
    for (const auto& unit : graph.units) {
      for (const auto& parameter : unit.parameters) {
        SCOPED_TRACE(fmt::format("trial {}, {}", trial, parameter.name));
        std::set<int> expected;
        for (const int user : graph.users(parameter.name)) expected.insert(ranks[static_cast<std::size_t>(user)]);
        int answers = 0;
        for (int at = 0; at < pp; ++at) {
          const auto& buffers = found[static_cast<std::size_t>(at)];
          const int place = place_of(buffers, parameter.name);
          ASSERT_EQ(place >= 0, expected.contains(at)) << at;
          if (place < 0) continue;
          EXPECT_EQ(buffers.pp_users[static_cast<std::size_t>(place)], Places(expected.begin(), expected.end()));
          answers += buffers.owner_here[static_cast<std::size_t>(place)] ? 1 : 0;
          int lowest = -1;
          for (int user : graph.users(parameter.name)) {
            if (ranks[static_cast<std::size_t>(user)] == at && lowest < 0) lowest = user;
          }
          for (std::size_t u = 0; u < graph.units.size(); ++u) {
            const bool holds = parameter.trainable && static_cast<int>(u) == lowest;
            EXPECT_EQ(has(buffers.held[u], place), holds) << graph.units[u].name;
          }
        }
        EXPECT_EQ(answers, 1);
      }
    }
  }
}

}  // namespace unit_buffers_test
}  // namespace orthant
