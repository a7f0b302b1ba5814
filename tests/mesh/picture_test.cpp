#include "orthant/mesh/picture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>
#include <sstream>

#include "mesh/random_mesh.h"
#include "mesh/thrown_error.h"
#include "orthant/mesh/hosts.h"

namespace orthant {
namespace picture_test {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// With runs of blanks, which only align columns, reduced to one.
std::string unaligned(const std::string& text) {
  std::string out;
  for (char letter : text) {
    const bool repeats = letter == ' ' && !out.empty() && (out.back() == ' ' || out.back() == '[');
    if (!repeats) out += letter;
  }
  return out;
}

TEST(Picture, ShowsStagesOfEachReplica) {
  for (const auto& [dp, tp, pp] : {std::array{2, 2, 2}, std::array{4, 2, 2}, std::array{4, 4, 4}}) {
    const Mesh mesh({{Axis::dp, dp}, {Axis::tp, tp}, {Axis::pp, pp}}, "dp,pp,tp");
    std::string expected;
    for (int replica = 0; replica < dp; ++replica) {
      expected += fmt::format(" dp {}\n", replica);
      for (int stage = 0; stage < pp; ++stage) {
        std::vector<int> ranks;
        ranks.reserve(tp);
        for (int slice = 0; slice < tp; ++slice) ranks.push_back(replica * (pp * tp) + stage * tp + slice);
        expected += fmt::format(" pp {}: [{}] host 0\n", stage, fmt::join(ranks, ", "));
      }
    }
    EXPECT_EQ(unaligned(grid_text(mesh, 64)), expected);
  }
}

TEST(Picture, MarksWhereTheNextHostBegins) {
  EXPECT_EQ(grid_text(Mesh::parse("dp=2,tp=4"), 2),
            "  dp 0: [0, 1 | 2, 3]  hosts 0-1\n  dp 1: [4, 5 | 6, 7]  hosts 2-3\n");
  EXPECT_EQ(grid_text(Mesh(), 8), "  [0]  host 0\n");
}

TEST(Picture, OfEightRanksIsThis) {
  EXPECT_EQ(mesh_text(Mesh::parse("pp=2,tp=2,dp=2"), 4),
            "mesh pp=2,dp=2,tp=2: 8 ranks on 2 hosts of up to 4, order pp,dp,fsdp,cp,tp (outermost first)\n"
            "\n"
            "ranks, with | where the next host begins\n"
            "  pp 0\n"
            "    dp 0: [0, 1]  host 0\n"
            "    dp 1: [2, 3]  host 0\n"
            "  pp 1\n"
            "    dp 0: [4, 5]  host 1\n"
            "    dp 1: [6, 7]  host 1\n"
            "\n"
            "groups\n"
            "  pp: 4 groups of 2\n"
            "    [0, 4] [1, 5] [2, 6] [3, 7]\n"
            "  dp: 4 groups of 2\n"
            "    [0, 2] [1, 3] [4, 6] [5, 7]\n"
            "  tp: 4 groups of 2\n"
            "    [0, 1] [2, 3] [4, 5] [6, 7]\n"
            "\n"
            "what travels\n"
            "  tp    4 groups of 2, inside hosts, high bandwidth\n"
            "        all-reduce of activations, 2x per layer, forward and backward; each "
            "O(micro_batch x seq_len x hidden_dim)\n"
            "  pp    4 groups of 2, across hosts, medium bandwidth\n"
            "        send/receive of activations, 1x per microbatch and stage, forward and backward; each "
            "O(micro_batch x seq_len x hidden_dim)\n"
            "  dp    4 groups of 2, inside hosts, low bandwidth\n"
            "        all-reduce of gradients, 1x per step; each O(model_parameters / (pp x tp))\n");
}

TEST(Picture, ShowsEveryRankOfMiddlingMeshes) {
  for (const char* text :
       {"dp=64", "pp=4,dp=4,tp=4", "pp=64", "dp=16,fsdp=4,ep=8", "dp=128", "pp=2,dp=2,fsdp=2,cp=2,tp=4"}) {
    const Mesh mesh = Mesh::parse(text);
    const std::string grid = grid_text(mesh, 8);
    EXPECT_EQ(mesh_text(mesh, 8).find("..."), std::string::npos) << text;
    const std::size_t width = fmt::formatted_size("{}", mesh.world_size() - 1);
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      EXPECT_NE(grid.find(fmt::format("{:>{}}", rank, width)), std::string::npos) << text << " rank " << rank;
    }
  }
}

TEST(Picture, StaysShortForThousandsOfRanks) {
  for (const char* text :
       {"dp=4096", "pp=16,dp=64,tp=8", "pp=8,dp=32,fsdp=4,cp=2,tp=8,ep=8", "pp=256,dp=256", "dp=129"}) {
    const std::string picture = mesh_text(Mesh::parse(text), 8);
    const auto lines = lines_of(picture);
    EXPECT_LT(lines.size(), 100U) << text;
    for (const std::string& line : lines) EXPECT_LE(line.size(), 160U) << line;
    EXPECT_NE(picture.find("... "), std::string::npos) << text;
  }
  EXPECT_NE(groups_text(Mesh::parse("dp=512,tp=8")).find("[0, 1, 2, 3, 4, 5, 6, 7] [8, "), std::string::npos);
  EXPECT_NE(groups_text(Mesh::parse("dp=512,tp=8")).find("... 508 more"), std::string::npos);
  EXPECT_NE(groups_text(Mesh::parse("dp=512,tp=8")).find("[0, 8, 16, ..., 4088]"), std::string::npos);
  EXPECT_NE(grid_text(Mesh::parse("dp=512,tp=8"), 8).find("... 504 more rows"), std::string::npos);
}

TEST(Picture, AdvisesWhenFastAxesCrossHosts) {
  EXPECT_NE(traffic_text(Mesh::parse("dp=2,tp=16"), 8)
                .find("note: tp needs fast links, but its groups of 16 cross hosts of 8: lower tp to at most 8"),
            std::string::npos);
  EXPECT_NE(traffic_text(Mesh::parse("dp=8,tp=2", "tp,dp"), 8)
                .find("its groups of 2 cross hosts of 8: choose degrees and an order that keep each group on one host"),
            std::string::npos);
  EXPECT_EQ(traffic_text(Mesh::parse("dp=2,tp=8"), 8).find("note"), std::string::npos);
}

TEST(Picture, OfOneRankSaysThatNothingTravels) {
  EXPECT_EQ(groups_text(Mesh()), "  none: one rank has nobody to talk to\n");
  EXPECT_EQ(traffic_text(Mesh(), 8), "  nothing: one rank has nobody to talk to\n");
}

TEST(NamedGroups, AddTheCombinedSetsThatGradientsNeed) {
  const auto names = [](const char* text) {
    std::string joined;
    for (const NamedGroups& named : named_groups(Mesh::parse(text))) joined += named.name + " ";
    return joined;
  };
  EXPECT_EQ(names("pp=2,dp=2,tp=2"), "pp dp tp ");
  EXPECT_EQ(names("dp=2,fsdp=2"), "dp fsdp dp+fsdp ");
  EXPECT_EQ(names("dp=2,fsdp=2,cp=2"), "dp fsdp cp dp+fsdp dp+fsdp+cp ");
  EXPECT_EQ(names("fsdp=2,cp=2"), "fsdp cp fsdp+cp ");
  EXPECT_EQ(names("dp=4,ep=2"), "dp ep edp ");
  EXPECT_EQ(names("dp=4,ep=4"), "dp ep ");
  EXPECT_EQ(names("dp=1"), "");
}

TEST(MeshJson, HoldsWhatProgramsRelyOn) {
  const auto json = mesh_json(Mesh::parse("pp=2,tp=2,dp=4", "pp,tp,dp"), 8);
  EXPECT_EQ(json["world_size"], 16);
  EXPECT_EQ(json["order"], (std::vector<std::string>{"pp", "tp", "dp", "fsdp", "cp"}));
  EXPECT_EQ(json["num_hosts"], 2);
  EXPECT_EQ(json["ranks"].size(), 16U);
  EXPECT_EQ(
      json["ranks"][13].dump(),
      R"({"rank":13,"host":1,"coordinate":{"pp":1,"dp":1,"fsdp":0,"cp":0,"tp":1},"pp_previous":5,"pp_next":null})");
  EXPECT_TRUE(json["ranks"][0]["pp_previous"].is_null());
  EXPECT_EQ(json["ranks"][0]["pp_next"], 8);
  EXPECT_EQ(json["groups"]["tp"][0], (std::vector<int>{0, 4}));
  EXPECT_EQ(json["groups"].size(), 3U);
  EXPECT_EQ(json["traffic"][0].dump(),
            R"({"axis":"tp","pattern":"all-reduce","payload":"activations","groups":8,"group_size":2,)"
            R"x("frequency":"2x per layer, forward and backward","data_size":"O(micro_batch x seq_len x hidden_dim)",)x"
            R"("bandwidth":"high","crosses_hosts":false})");
}

TEST(MeshJson, HasTheSameShapeForOneRank) {
  EXPECT_EQ(mesh_json(Mesh(), 8).dump(),
            R"({"world_size":1,"order":["pp","dp","fsdp","cp","tp"],)"
            R"("degrees":{"pp":1,"dp":1,"fsdp":1,"cp":1,"tp":1,"ep":1},"ranks_per_host":8,"num_hosts":1,)"
            R"("ranks":[{"rank":0,"host":0,"coordinate":{"pp":0,"dp":0,"fsdp":0,"cp":0,"tp":0},)"
            R"("pp_previous":null,"pp_next":null}],"groups":{},"traffic":[]})");
}

TEST(MeshJson, AgreesWithTheMesh) {
  test::RandomMeshes meshes(21);
  for (int i = 0; i < 50; ++i) {
    const Mesh mesh = meshes.next();
    const auto json = mesh_json(mesh, 3);
    for (int rank = 0; rank < mesh.world_size(); ++rank) {
      const auto& entry = json["ranks"][rank];
      EXPECT_EQ(entry["host"], host_of(rank, 3));
      EXPECT_EQ(entry["coordinate"].contains("ep"), mesh.degree(Axis::ep) > 1);
      for (Axis axis : kMeshAxes)
        EXPECT_EQ(entry["coordinate"][std::string(axis_name(axis))], mesh.coordinate(rank)[axis]);
    }
    for (Axis axis : mesh.active_axes()) EXPECT_EQ(json["groups"][std::string(axis_name(axis))], mesh.groups(axis));
  }
}

TEST(MeshJson, RefusesHostsWithoutRanks) {
  EXPECT_THROW(mesh_json(Mesh(), 0), ConfigError);
  EXPECT_THROW(mesh_text(Mesh::parse("dp=2"), -8), ConfigError);
}

}  // namespace picture_test
}  // namespace orthant
