#include "orthant/mesh/world_fit.h"

#include <gtest/gtest.h>

#include "mesh/random_mesh.h"
#include "mesh/thrown_error.h"

namespace orthant {
namespace world_fit_test {

using test::thrown_text;

std::string nearest_text(const char* mesh, int world_size) {
  return nearest_mesh(Mesh::parse(mesh), world_size).to_string();
}

TEST(Mesh, AcceptsTheWorldItFills) {
  EXPECT_NO_THROW(Mesh::parse("pp=2,tp=2,dp=4").check_world(16));
  EXPECT_NO_THROW(Mesh().check_world(1));
  EXPECT_NO_THROW(Mesh::parse("dp=8,ep=4").check_world(8));
}

TEST(Mesh, RejectsDegreesThatDoNotFillTheWorld) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("pp=2,tp=2,dp=4").check_world(8); }),
            "mesh pp=2,dp=4,tp=2 needs 16 ranks, but the world has 8\n"
            "set the mesh to pp=2,dp=2,tp=2, or start 16 ranks");
  EXPECT_EQ(thrown_text([] { Mesh::parse("pp=2,tp=2").check_world(6); }),
            "mesh pp=2,tp=2 needs 4 ranks, but the world has 6\n"
            "set the mesh to pp=3,tp=2, or start 4 ranks");
}

TEST(Mesh, RejectsWorldsThatCannotBe) {
  EXPECT_EQ(thrown_text([] { Mesh().check_world(0); }),
            "a world of 0 ranks: it must have 1 to 1048576\n"
            "start at least one rank, and as many as the product of the mesh's degrees");
  EXPECT_THROW(Mesh().check_world(-1), ConfigError);
  EXPECT_THROW(Mesh().check_world(Mesh::kMaxRanks + 1), ConfigError);
}

TEST(NearestMesh, ChangesOnlyAReplicaDegreeWhenThatSuffices) {
  EXPECT_EQ(nearest_text("pp=2,tp=2,dp=4", 64), "pp=2,dp=16,tp=2");
  EXPECT_EQ(nearest_text("fsdp=4,tp=2", 16), "fsdp=8,tp=2");
  EXPECT_EQ(nearest_text("dp=2,fsdp=4,tp=2", 32), "dp=4,fsdp=4,tp=2");
  EXPECT_EQ(nearest_text("dp=2,fsdp=4,tp=2", 12), "dp=2,fsdp=3,tp=2") << "dp cannot fill it, fsdp can";
  EXPECT_EQ(nearest_text("tp=8", 64), "dp=8,tp=8");
  EXPECT_EQ(nearest_text("dp=1", 7), "dp=7");
}

TEST(NearestMesh, FindsAFullFactorisationOtherwise) {
  EXPECT_EQ(nearest_text("tp=8", 4), "tp=4");
  EXPECT_EQ(nearest_text("pp=4,tp=8", 8), "tp=8") << "equal steps: tp is kept before pp";
  EXPECT_EQ(nearest_text("pp=3,tp=2,dp=2", 16), "pp=4,dp=2,tp=2");
  EXPECT_EQ(nearest_text("pp=2,tp=2,dp=4", 1), "dp=1");
}

TEST(NearestMesh, KeepsOrderAndLowersExpertsToADivisor) {
  EXPECT_EQ(nearest_text("dp=8,tp=2,ep=16,order=tp:dp", 12), "dp=6,tp=2,ep=12,order=tp:dp");
  EXPECT_EQ(nearest_text("dp=8,ep=8", 6), "dp=6,ep=6");
}

TEST(NearestMesh, AlwaysFillsTheWorld) {
  test::RandomMeshes meshes(11);
  for (int i = 0; i < 500; ++i) {
    const Mesh mesh = meshes.next();
    const int world_size = 1 + meshes.below(100);
    const Mesh nearest = nearest_mesh(mesh, world_size);
    EXPECT_NO_THROW(nearest.check_world(world_size)) << mesh.to_string();
    EXPECT_EQ(nearest.order(), mesh.order());
    EXPECT_EQ(nearest_mesh(nearest, world_size), nearest) << "a mesh that fits is its own nearest";
  }
}

TEST(NearestMesh, IsFoundForAWorldOfManyFactors) {
  EXPECT_EQ(nearest_mesh(Mesh::parse("pp=7,dp=4,fsdp=4,cp=11,tp=17"), 720720).world_size(), 720720);
}

TEST(Mesh, InfersTheDegreeThatWasNotGiven) {
  EXPECT_EQ(Mesh::parse("pp=2,tp=2").with_inferred(Axis::dp, 16), Mesh::parse("pp=2,tp=2,dp=4"));
  EXPECT_EQ(Mesh::parse("pp=2,tp=2,dp=9").with_inferred(Axis::dp, 4), Mesh::parse("pp=2,tp=2"));
  EXPECT_EQ(Mesh::inferred({{Axis::ep, 4}}, Axis::fsdp, 8), Mesh::parse("fsdp=8,ep=4"));
  EXPECT_EQ(Mesh::inferred({{Axis::pp, 2}}, Axis::dp, 8, "dp,pp"), Mesh::parse("pp=2,dp=4", "dp,pp"));
}

TEST(Mesh, RefusesToInferADegreeThatIsNotWhole) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("pp=2,tp=2").with_inferred(Axis::dp, 10); }),
            "dp cannot be inferred: pp=2,tp=2 needs 4 ranks, which does not divide the world of 10\n"
            "start 8 or 12 ranks, or set the mesh to pp=5,tp=2");
  EXPECT_NE(thrown_text([] {
              Mesh::parse("tp=8").with_inferred(Axis::dp, 4);
            }).find("start 8 ranks, or set the mesh to tp=4"),
            std::string::npos);
  EXPECT_EQ(thrown_text([] { Mesh().with_inferred(Axis::ep, 8); }),
            "the degree of ep cannot be inferred: it does not add to the world\nset ep");
  EXPECT_THROW(Mesh().with_inferred(Axis::dp, 0), ConfigError);
  EXPECT_THROW(Mesh::inferred({{Axis::pp, 0}}, Axis::dp, 8), ConfigError);
  EXPECT_THROW(Mesh::inferred({{Axis::ep, 3}}, Axis::dp, 8), ConfigError);
}

TEST(WorldFit, TheNearestMeshIsTheNearestThatIsAccepted) {
  const auto nearest = [](const char* mesh, int world_size, const std::function<bool(const Mesh&)>& accepts) {
    const auto found = nearest_mesh_that(Mesh::parse(mesh), world_size, accepts);
    return found ? found->to_string() : "none";
  };
  EXPECT_EQ(nearest("pp=2,tp=2", 8, [](const Mesh&) { return true; }), "pp=2,dp=2,tp=2");
  EXPECT_EQ(nearest("pp=2,tp=2", 12, [](const Mesh& mesh) { return mesh.degree(Axis::dp) == 1; }), "pp=6,tp=2");
  EXPECT_EQ(nearest("tp=2", 7, [](const Mesh& mesh) { return mesh.degree(Axis::tp) == 1; }), "dp=7");
  EXPECT_EQ(nearest("tp=2", 7, [](const Mesh&) { return false; }), "none");
}

}  // namespace world_fit_test
}  // namespace orthant
