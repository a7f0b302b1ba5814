#include "orthant/layout/expert_view.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "layout/naive_layout.h"
#include "layout/random_graph.h"
#include "mesh/thrown_error.h"
#include "models/small_models.h"
#include "orthant/base/error.h"
#include "orthant/layout/data_views.h"
#include "orthant/layout/pieces.h"

namespace orthant {
namespace expert_view_test {

constexpr std::int64_t kExperts = 6;
constexpr std::int64_t kInner = 8;

// One layer: a router, experts, and something dense.
GraphSpec layer() {
  std::vector<ParameterSpec> parameters = {test::named_parameter("layer.router", {kExperts, 3})};
  for (std::int64_t e = 0; e < kExperts; ++e) {
    const auto name = fmt::format("layer.experts.{}", e);
    for (const auto* gate : {"w1", "w3"}) {
      parameters.push_back(test::named_parameter(fmt::format("{}.{}", name, gate), {kInner, 3}, Split{0}));
      parameters.back().joined = "experts_in";
      parameters.back().expert = ExpertPlace{e, kExperts};
    }
  }
  for (std::int64_t e = 0; e < kExperts; ++e) {
    parameters.push_back(test::named_parameter(fmt::format("layer.experts.{}.w2", e), {3, kInner}, Split{1}));
    parameters.back().joined = "experts_out";
    parameters.back().expert = ExpertPlace{e, kExperts};
  }
  parameters.push_back(test::named_parameter("layer.dense", {8, 5}, Split{0}));
  return test::named_graph("moe", {test::named_unit("layer", parameters)});
}

TensorPolicy policy(bool sequence_parallel, std::optional<bool> expert_tp = {}) {
  TensorPolicy tensor;
  tensor.sequence_parallel = sequence_parallel;
  tensor.expert_tp = expert_tp;
  return tensor;
}

std::string refusal(const std::string& mesh, const TensorPolicy& tensor, const GraphSpec& graph = layer()) {
  return test::thrown_text<ConfigError>([&] { with_experts(graph, Mesh::parse(mesh), tensor); });
}

TEST(ExpertView, LeavesExpertsAmongOthersWhereNothingIsSeenTwice) {
  for (const auto* text : {"dp=1", "dp=4", "fsdp=2,tp=2", "pp=2,cp=2,tp=2"}) {
    const auto graph = with_experts(layer(), Mesh::parse(text), policy(false));
    EXPECT_FALSE(has_experts(graph)) << text;
    EXPECT_TRUE(graph.parameter("layer.experts.0.w1").tp.has_value()) << text;
  }
}

TEST(ExpertView, AUnitRoutesTokensWhereverItsExpertsLie) {
  const auto mixture = llama_spec(test::small_mixture(), test::small_work());
  EXPECT_TRUE(routes_tokens(mixture));
  const auto placed = with_experts(mixture, Mesh::parse("dp=1"), policy(false));
  EXPECT_FALSE(has_experts(placed));
  EXPECT_TRUE(routes_tokens(placed));
}

TEST(ExpertView, SeesShardsWithinADpCoordinateWhereTheyFit) {
  const auto degrees = [](const std::string& mesh, int expert_tp) {
    return expert_mesh(Mesh::parse(mesh), expert_tp).to_string();
  };
  EXPECT_EQ(degrees("dp=2,fsdp=4,ep=2", 1), "dp=2,fsdp=2,tp=2");
  EXPECT_EQ(degrees("dp=2,fsdp=2,tp=2,ep=2", 1), "dp=2,fsdp=2,tp=2");
  EXPECT_EQ(degrees("dp=2,fsdp=2,tp=2,ep=2", 2), "dp=2,tp=4");
  EXPECT_EQ(degrees("dp=4,fsdp=2,ep=4", 1), "fsdp=2,tp=4") << "an ep group spans two dp coordinates";
  EXPECT_EQ(degrees("dp=4,ep=2", 1), "dp=2,tp=2");
  EXPECT_EQ(degrees("pp=2,fsdp=2,cp=2,ep=2", 1), "pp=2,fsdp=2,tp=2");
  EXPECT_EQ(degrees("fsdp=2,dp=2,ep=2,order=pp:fsdp:dp", 1), "fsdp=2,tp=2") << "dp lies inside of fsdp";
}

TEST(ExpertView, SendsTokensBetweenNeighboursOrOverTp) {
  EXPECT_EQ(token_groups(Mesh::parse("dp=2,tp=2,ep=2"), 1), (std::vector<RankList>{{0, 1}, {2, 3}}));
  EXPECT_EQ(token_groups(Mesh::parse("dp=2,tp=2,ep=2"), 2), (std::vector<RankList>{{0, 2}, {1, 3}}));
  for (const auto* text : {"dp=4,ep=2", "pp=2,dp=2,fsdp=2,tp=2,ep=4"}) {
    const auto mesh = Mesh::parse(text);
    EXPECT_EQ(token_groups(mesh, 1), mesh.groups(Axis::ep)) << text;
  }
}

// Every element of the model is written once, by a rank that owns it, and each token group holds each expert once.
void expect_whole(const Mesh& mesh, const GraphSpec& graph) {
  std::map<std::string, std::vector<int>> writers;
  std::map<int, std::multiset<std::pair<std::string, std::int64_t>>> held;  // rank -> elements of experts
  for (int rank = 0; rank < mesh.world_size(); ++rank) {
    if (mesh.coordinate(rank)[Axis::pp] > 0) continue;
    for (const FlatBuffer& buffer : flat_buffers(graph, 0, mesh, mesh.coordinate(rank))) {
      const Mesh lies_on = mesh_of(buffer, mesh);
      const Range shard = buffer.shard(lies_on.coordinate(rank)[Axis::fsdp]);
      for (const Piece& piece : pieces_to_write(buffer, mesh, rank)) {
        EXPECT_GE(piece.local_offset, shard.begin);
        EXPECT_LE(piece.local_offset + piece.elements(), shard.end);
        const auto& shape = graph.parameter(piece.tensor).shape;
        auto& counts = writers[piece.tensor];
        counts.resize(static_cast<std::size_t>(num_elements(shape)));
        for (const auto element : test::piece_elements(shape, piece)) ++counts[static_cast<std::size_t>(element)];
      }
      for (const FlatEntry& entry : buffer.entries) {
        if (buffer.expert_tp == 0) continue;
        for (const TensorBox& box : entry.boxes) {
          const auto& shape = graph.parameter(entry.parameter).shape;
          for (const auto e : test::box_elements(shape, box.offsets, box.lengths))
            held[rank].insert({entry.parameter, e});
        }
      }
    }
  }
  for (const UnitSpec& unit : graph.units) {
    for (const ParameterSpec& parameter : unit.parameters) {
      const auto& counts = writers[parameter.name];
      EXPECT_EQ(counts, std::vector<int>(static_cast<std::size_t>(num_elements(parameter.shape)), 1)) << parameter.name;
    }
  }
  for (const RankList& holders : expert_mesh(mesh, expert_tp(graph, mesh)).groups(Axis::tp)) {
    std::multiset<std::pair<std::string, std::int64_t>> all;
    for (const int rank : holders) all.insert(held[rank].begin(), held[rank].end());
    if (mesh.coordinate(holders.front())[Axis::pp] > 0) continue;
    EXPECT_EQ(all.size(), kExperts * 3 * 3 * kInner);
    EXPECT_EQ(std::set(all.begin(), all.end()).size(), all.size());
  }
}

TEST(ExpertView, WritesEveryElementOnceOnEveryMesh) {
  int meshes = 0;
  for (const int dp : {1, 2}) {
    for (const int fsdp : {1, 2, 4}) {
      for (const int cp : {1, 2}) {
        for (const int tp : {1, 2}) {
          for (const int ep : {1, 2, 3, 4, 6}) {
            for (const bool shared : {false, true}) {
              const int stage = dp * fsdp * cp * tp;
              const bool fits = stage % (ep * (shared ? tp : 1)) == 0;
              if (!fits || (ep == 1 && (shared || tp == 1))) continue;
              const Mesh mesh(
                  {{Axis::pp, 2}, {Axis::dp, dp}, {Axis::fsdp, fsdp}, {Axis::cp, cp}, {Axis::tp, tp}, {Axis::ep, ep}});
              SCOPED_TRACE(fmt::format("{} expert_tp {}", mesh.to_string(), shared));
              const auto graph = with_experts(layer(), mesh, policy(true, shared));
              expect_whole(mesh, graph);
              DataPolicy sharded{.zero = 3};
              expect_whole(parameter_mesh(mesh, effective_policy(sharded, mesh)), graph);
              ++meshes;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(meshes, 40);
}

TEST(ExpertView, MakesExpertsWithoutShardsZeroOneOfTheirPolicy) {
  const Mesh mesh = Mesh::parse("fsdp=2,ep=2");
  DataSettings settings;
  settings.mesh = mesh;
  settings.policy = effective_policy({.zero = 3}, mesh);
  const auto views = data_views(with_experts(layer(), mesh, policy(false)), settings);
  ASSERT_EQ(views.size(), 2U);
  EXPECT_EQ(views[0].settings.policy.zero, 3);
  EXPECT_EQ(views[1].settings.policy.zero, 0) << "each rank holds its experts alone";
  EXPECT_EQ(views[0].buffers.used[0].size(), 1U);
  EXPECT_EQ(views[1].buffers.used[0].size(), 1U);
}

TEST(ExpertView, RefusesWhatDoesNotFit) {
  EXPECT_EQ(refusal("dp=8,ep=8", policy(false)),
            "mesh dp=8,ep=8: layers have 6 experts for 8 ranks of ep\nset ep to 6 or less");
  EXPECT_EQ(refusal("dp=2,ep=2", policy(false), test::named_graph("dense", {test::named_unit("layer")})),
            "mesh dp=2,ep=2: the model has no experts for ep\nuse --mesh dp=2, or leave ep out");
  EXPECT_EQ(refusal("dp=2,tp=2,ep=2", policy(false)),
            "mesh dp=2,tp=2,ep=2: experts are whole on each of 2 tp ranks, which have the same tokens without sequence "
            "parallelism\nset parallel.sequence_parallel=true, or parallel.expert_tp=true");
  EXPECT_EQ(refusal("dp=2,tp=2,ep=4", policy(true, true)),
            "mesh dp=2,tp=2,ep=4: ep=4 with each expert over 2 tp ranks does not divide the 4 ranks of a stage\n"
            "set parallel.expert_tp=false, or a smaller ep");
  EXPECT_NE(refusal("pp=2,dp=2,ep=2,order=dp:pp", policy(false)).find("does not have pp outermost"), std::string::npos);
}

}  // namespace expert_view_test
}  // namespace orthant
