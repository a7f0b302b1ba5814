// Meshes read from and written as text.
#include <gtest/gtest.h>

#include "mesh/thrown_error.h"
#include "orthant/mesh/mesh.h"

namespace orthant {
namespace mesh_text_test {

using test::thrown_text;

TEST(MeshText, ReadsAxesInAnyWrittenOrder) {
  const Mesh mesh = Mesh::parse("pp=2,tp=2,dp=4");
  EXPECT_EQ(mesh, Mesh::parse(" dp = 4, tp=2 ,pp=2 "));
  EXPECT_EQ(mesh, Mesh({{Axis::pp, 2}, {Axis::tp, 2}, {Axis::dp, 4}}));
  EXPECT_EQ(mesh.world_size(), 16);
  EXPECT_EQ(mesh.degree(Axis::dp), 4);
  EXPECT_EQ(mesh.degree(Axis::fsdp), 1);
  EXPECT_EQ(mesh.order(), kDefaultOrder);
}

TEST(MeshText, IsCanonicalAndParsesBack) {
  EXPECT_EQ(Mesh::parse("tp=2,pp=2,cp=1").to_string(), "pp=2,tp=2");
  EXPECT_EQ(Mesh().to_string(), "dp=1");
  EXPECT_EQ(Mesh::parse("dp=4,tp=2,ep=8").to_string(), "dp=4,tp=2,ep=8");
  const Mesh ordered = Mesh::parse("pp=2,tp=2,dp=4", "pp,tp,dp");
  EXPECT_EQ(ordered.to_string(), "pp=2,dp=4,tp=2,order=pp:tp:dp");
  EXPECT_EQ(Mesh::parse(ordered.to_string()), ordered);
  EXPECT_EQ(Mesh::parse(ordered.to_string(), "pp,tp,dp"), ordered) << "the same order may be given twice";
}

TEST(MeshText, OrderOfUnusedAxesIsKept) {
  const Mesh mesh = Mesh::parse("pp=2,tp=2", "pp,tp,dp");
  EXPECT_EQ(Mesh::parse(mesh.to_string()), mesh);
  EXPECT_EQ(mesh.with_inferred(Axis::dp, 16), Mesh::parse("pp=2,tp=2,dp=4", "pp,tp,dp"));
}

TEST(MeshText, EqualMeshesHashEqual) {
  const std::hash<Mesh> hash;
  EXPECT_EQ(hash(Mesh::parse("tp=2,dp=2")), hash(Mesh::parse("dp=2,tp=2")));
  EXPECT_NE(hash(Mesh::parse("tp=2,dp=4")), hash(Mesh::parse("tp=4,dp=2")));
  EXPECT_NE(Mesh::parse("tp=2,dp=2"), Mesh::parse("tp=2,dp=2", "tp,dp"));
  EXPECT_NE(Mesh::parse("dp=4"), Mesh::parse("dp=4,ep=2"));
}

TEST(MeshText, RefusesAnEmptyMesh) {
  const std::string expected = "the mesh is empty\nwrite degrees such as pp=2,dp=2,tp=2, or dp=1 for one rank";
  EXPECT_EQ(thrown_text([] { Mesh::parse(""); }), expected);
  EXPECT_EQ(thrown_text([] { Mesh::parse(" \t "); }), expected);
}

TEST(MeshText, RefusesDegreesBelowOne) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("tp=0"); }), "tp=0: a degree must be at least 1\nset tp=1 or leave tp out");
  EXPECT_EQ(thrown_text([] { Mesh::parse("pp=2,dp=-4"); }),
            "dp=-4: a degree must be at least 1\nset dp=1 or leave dp out");
  EXPECT_EQ(thrown_text([] { Mesh({{Axis::ep, -1}}); }),
            "ep=-1: a degree must be at least 1\nset ep=1 or leave ep out");
}

TEST(MeshText, RefusesDegreesThatAreNotWholeNumbers) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("tp=two"); }),
            "the degree of tp is \"two\", which is not a whole number\n"
            "write tp=N with N at least 1, and a comma between axes: pp=2,dp=2,tp=2");
  for (const char* degree : {"", "2.0", "2x", "+2", "0x2", "2e1", "1 2", "--1", "2=3", "\xff", "2 tp=2", "２"}) {
    const std::string text = std::string("pp=2,tp=") + degree;
    EXPECT_NE(thrown_text([&] { Mesh::parse(text); }).find("not a whole number"), std::string::npos) << text;
  }
}

TEST(MeshText, RefusesMoreRanksThanAMeshCanHave) {
  const std::string remedy = "\nset dp to the number of ranks on that axis";
  EXPECT_EQ(thrown_text([] { Mesh::parse("dp=1048577"); }), "dp=1048577: a mesh has at most 1048576 ranks" + remedy);
  EXPECT_EQ(thrown_text([] { Mesh::parse("dp=99999999999999999999"); }),
            "dp=99999999999999999999: a mesh has at most 1048576 ranks" + remedy);
  EXPECT_THROW(Mesh::parse("dp=-99999999999999999999"), ConfigError);
  EXPECT_EQ(thrown_text([] { Mesh::parse("dp=2048,tp=1024"); }),
            "mesh dp=2048,tp=1024 has more than 1048576 ranks\n"
            "lower the degrees: their product is the number of ranks");
  EXPECT_THROW(Mesh::parse("pp=1048576,dp=1048576,fsdp=1048576,cp=1048576,tp=1048576"), ConfigError);
  EXPECT_EQ(Mesh::parse("dp=1024,tp=1024").world_size(), Mesh::kMaxRanks);
}

TEST(MeshText, RefusesAnAxisGivenTwice) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("tp=2,dp=2,tp=4"); }),
            "mesh \"tp=2,dp=2,tp=4\" gives tp twice, as 2 and 4\nkeep one: tp=2 or tp=4");
}

TEST(MeshText, RefusesUnknownAxes) {
  EXPECT_NE(thrown_text([] { Mesh::parse("fdsp=2"); }).find("use fsdp; "), std::string::npos);
  EXPECT_THROW(Mesh::parse("=2"), ConfigError);
}

TEST(MeshText, RefusesFieldsWithoutADegree) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("pp=2,tp"); }),
            "mesh \"pp=2,tp\": expected axis=degree, found \"tp\"\nwrite degrees such as pp=2,dp=2,tp=2");
  for (const char* text : {",", "tp=2,", ",tp=2", "tp=2,,dp=2", "tp2", "tp:2", "8", "tp=2;dp=2", "{}", "order"}) {
    EXPECT_THROW(Mesh::parse(text), ConfigError) << text;
  }
}

TEST(MeshText, RefusesTwoDifferentOrders) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("dp=2,tp=2,order=tp:dp", "dp,tp"); }),
            "the mesh is dp=2,tp=2,order=tp:dp, but its order is also given as \"dp,tp\"\ngive the order once");
  EXPECT_EQ(thrown_text([] { Mesh::parse("dp=2,order=dp:tp,order=dp:tp"); }),
            "mesh \"dp=2,order=dp:tp,order=dp:tp\" gives the order twice\ngive the order once");
  EXPECT_EQ(thrown_text([] { Mesh::parse("dp=2,order="); }),
            "the mesh has an empty order\nleave it out or write axes, such as order=pp:tp:dp");
  EXPECT_THROW(Mesh::parse("dp=2,tp=2,order=dp"), ConfigError);
}

TEST(MeshText, RefusesAnExpertDegreeThatDoesNotDivideAStage) {
  EXPECT_EQ(thrown_text([] { Mesh::parse("pp=2,dp=4,tp=2,ep=3"); }),
            "mesh pp=2,dp=4,tp=2,ep=3: ep=3 does not divide the 8 ranks of a pipeline stage\n"
            "set ep to one of 1, 2, 4, 8");
  EXPECT_EQ(thrown_text([] { Mesh::parse("ep=2"); }),
            "mesh ep=2: ep=2 does not divide the 1 rank of a pipeline stage\n"
            "leave ep out: it splits ranks that other axes provide");
  EXPECT_NE(thrown_text([] { Mesh::parse("dp=720,ep=7"); }).find("set ep to one of 4, 5, 6, 8, 9, 10, 12, 15"),
            std::string::npos);
}

}  // namespace mesh_text_test
}  // namespace orthant
