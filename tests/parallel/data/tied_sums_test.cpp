// Stages that share a tied parameter: who they are, and that all of them get the same sum.
#include "orthant/parallel/data/tied_sums.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "comm/ranks.h"
#include "orthant/comm/faulty.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {
namespace tied_sums_test {

// Three units; a.table is tied to c, and a.scale to b and c.
GraphSpec tied_graph() {
  GraphSpec graph;
  for (const char* name : {"a", "b", "c"}) {
    auto& unit = graph.units.emplace_back();
    unit.name = name;
    unit.parameters = {{.name = unit.name + ".weight", .shape = {3, 2}}};
  }
  graph.units[0].parameters.push_back({.name = "a.table", .shape = {5, 2}});
  graph.units[0].parameters.push_back({.name = "a.scale", .shape = {4}});
  graph.units[1].borrowed = {"a.scale"};
  graph.units[2].borrowed = {"a.table", "a.scale"};
  return graph;
}

using Members = std::vector<std::vector<int>>;

std::map<std::string, Members> requests_of(const Mesh& mesh) {
  std::map<std::string, Members> found;
  for (const auto& request : tied_groups(tied_graph(), mesh, {0, 1, 2})) found[request.name] = request.members;
  return found;
}

TEST(TiedGroups, AreThePlacesOfTheirUsersInEveryReplica) {
  const auto found = requests_of(Mesh::parse("pp=3,dp=2"));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found.at("stages at pp 0+2"), (Members{{0, 4}, {1, 5}}));
  EXPECT_EQ(found.at("stages at pp 0+1+2"), (Members{{0, 2, 4}, {1, 3, 5}}));
}

TEST(TiedGroups, FollowTheOrderOfTheAxes) {
  const auto found = requests_of(Mesh::parse("pp=3,dp=2", "dp,pp,fsdp,cp,tp"));
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found.at("stages at pp 0+2"), (Members{{0, 2}, {3, 5}}));
  EXPECT_EQ(found.at("stages at pp 0+1+2"), (Members{{0, 1, 2}, {3, 4, 5}}));
  // pp is in the middle: dp, pp, tp.
  const auto middle = requests_of(Mesh::parse("pp=3,dp=2,tp=2", "dp,pp,fsdp,cp,tp"));
  EXPECT_EQ(middle.at("stages at pp 0+2"), (Members{{0, 4}, {1, 5}, {6, 10}, {7, 11}}));
}

TEST(TiedGroups, AreNoneWhereOneStageHasAllUsers) {
  EXPECT_TRUE(tied_groups(tied_graph(), Mesh::parse("pp=2"), {0, 0, 0}).empty());
}

// Every rank's gradient of each parameter is its pp coordinate + 1, ten times that in the second replica. `summed`: are
// those of the parameter.
void expect_sums(const Mesh& mesh, const comm::CommOptions& options,
                 const std::function<bool(const std::string&)>& summed) {
  const auto graph = tied_graph();
  const std::vector<int> unit_pp_coordinates = {0, 1, 2};
  comm::run_thread_ranks(mesh.world_size(), [&](int rank, comm::Store store) {
    comm::Communicator communicator(mesh, rank, store, options, store_groups(mesh, {}),
                                    tied_groups(graph, mesh, unit_pp_coordinates));
    const auto zeros = [](std::int64_t n, at::ScalarType type) {
      return at::zeros({n}, at::TensorOptions().dtype(type));
    };
    const auto coordinate = mesh.coordinate(rank);
    const int pp = coordinate[Axis::pp];
    ParameterStore parameters(graph, mesh, rank, {}, zeros,
                              {.policy = {},
                               .unit_groups = {},
                               .unit_pp_coordinates = unit_pp_coordinates,
                               .hook = {},
                               .communicator = &communicator,
                               .make_host = {}});
    const auto units = unit_buffers(graph, mesh, coordinate, {}, unit_pp_coordinates);
    TiedSums sums(parameters.buffers(), units, &communicator);
    const double replica = coordinate[Axis::dp] == 0 ? 1 : 10;
    for (const auto& buffer : parameters.buffers()) buffer->owned_gradient().fill_((pp + 1) * replica);
    sums.run();
    for (std::size_t b = 0; b < units.all.size(); ++b) {
      const auto& layout = units.all[b];
      double expected = pp + 1;
      const bool table = layout.find("a.table") != nullptr;
      const bool scale = layout.find("a.scale") != nullptr;
      if (table && summed("a.table")) expected = 1 + 3;
      if (scale && summed("a.scale")) expected = 1 + 2 + 3;
      EXPECT_EQ(sums.sums(static_cast<int>(b)), table || scale) << layout.name;
      const auto gradient = parameters.buffers()[b]->owned_gradient();
      EXPECT_TRUE(at::equal(gradient, at::full_like(gradient, expected * replica))) << layout.name;
    }
    communicator.close();
  });
}

TEST(TiedSums, AllOwnersGetTheSumOverTheirStages) {
  for (const char* order : {"pp,dp,fsdp,cp,tp", "dp,pp,fsdp,cp,tp"}) {
    expect_sums(Mesh::parse("pp=3,dp=2", order), comm::test::quick(false, comm::BackendKind::shm),
                [](const std::string&) { return true; });
  }
}

// A transport with a fault finds them by parameter, by the unit that owns them and by axis.
TEST(TiedSums, SayForWhichParametersTheyAre) {
  const auto mesh = Mesh::parse("pp=3,dp=2");
  auto options = comm::test::quick(false, comm::BackendKind::shm);
  options.wrap = comm::leave_out_sums(mesh, {.axis = Axis::pp, .name = "a.table"});
  expect_sums(mesh, options, [](const std::string& parameter) { return parameter == "a.scale"; });
  options.wrap = comm::leave_out_sums(mesh, {.axis = Axis::pp, .name = "a"});
  expect_sums(mesh, options, [](const std::string&) { return false; });
  options.wrap = comm::leave_out_sums(mesh, {.axis = Axis::dp});
  expect_sums(mesh, options, [](const std::string&) { return true; });
}

TEST(TiedSums, AreNoneWithoutACommunicator) {
  const auto mesh = Mesh::parse("pp=3");
  const auto units = unit_buffers(tied_graph(), mesh, mesh.coordinate(0), {}, {0, 1, 2});
  const std::vector<std::unique_ptr<FlatParameters>> none;
  EXPECT_TRUE(TiedSums(none, units, nullptr).buffers().empty());
}

}  // namespace tied_sums_test
}  // namespace orthant
