#include "orthant/train/picked_mesh.h"

#include <gtest/gtest.h>

#include <map>

#include "orthant/train/run_config.h"
#include "orthant/train/run_estimate.h"

namespace orthant {
namespace picked_mesh_test {

JsonDocument document(const std::vector<std::string>& overrides = {}) {
  std::vector<std::string> all = {"train.global_batch_size=8", "data.sequence_length=64"};
  all.insert(all.end(), overrides.begin(), overrides.end());
  return load_run_document(ORTHANT_SOURCE_DIR "/configs/llama_tiny.json", all);
}

RankWorld world_of(int ranks, std::int64_t memory_bytes = std::int64_t{1} << 30) {
  RankWorld world{.size = ranks, .ranks_per_host = ranks, .hardware = find_hardware("cpu")};
  world.hardware.memory_bytes = memory_bytes;
  return world;
}

std::map<std::string, std::string> settings_of(const PickedMesh& picked) {
  return {picked.settings.begin(), picked.settings.end()};
}

// What `train` reads when it is told of the mesh.
RunConfig config_of(const std::vector<std::string>& overrides, const PickedMesh& picked) {
  auto all = overrides;
  for (const Axis axis : kAxes) {
    all.push_back("mesh." + std::string(axis_name(axis)) + "=" + std::to_string(picked.mesh.degree(axis)));
  }
  for (const auto& [key, value] : picked.settings) all.push_back(key + "=" + value);
  return read_run_config(document(all));
}

TEST(PickedMesh, FillsTheWorldAndLeavesTheBatchAlone) {
  for (const int ranks : {1, 2, 8}) {
    const auto picked = pick_mesh(document(), world_of(ranks));
    ASSERT_TRUE(picked.found()) << picked.reason;
    EXPECT_EQ(picked.mesh.world_size(), ranks);
    EXPECT_GT(picked.step_seconds, 0);
    const auto settings = settings_of(picked);
    EXPECT_FALSE(settings.contains("train.global_batch_size"));
    EXPECT_FALSE(settings.contains("data.sequence_length"));
    EXPECT_EQ(config_of({}, picked).global_batch_size, 8);
  }
  EXPECT_EQ(pick_mesh(document(), world_of(2)).text(), pick_mesh(document(), world_of(2)).text());
}

TEST(PickedMesh, PicksAnotherMeshWhereTheFastestDoesNotFit) {
  const auto roomy = pick_mesh(document(), world_of(4));
  ASSERT_TRUE(roomy.found()) << roomy.reason;
  EXPECT_EQ(roomy.mesh.to_string(), "dp=4");
  const auto tight_world = world_of(4, std::int64_t{4} << 20);
  const auto tight = pick_mesh(document(), tight_world);
  ASSERT_TRUE(tight.found()) << tight.reason;
  EXPECT_EQ(tight.mesh.world_size(), 4);
  EXPECT_FALSE(estimate_run(config_of({}, roomy), tight_world.hardware).fits);
  EXPECT_TRUE(estimate_run(config_of({}, tight), tight_world.hardware).fits);
}

TEST(PickedMesh, ForgetsWhatIsConfiguredForAnotherMesh) {
  const std::vector<std::string> other = {"mesh.pp=2",
                                          "mesh.dp=3",
                                          "parallel.zero=3",
                                          "parallel.microbatches=4",
                                          "parallel.schedule=zbv",
                                          "parallel.recompute=full",
                                          R"(parallel.placement=[0,1,1,0])"};
  const auto picked = pick_mesh(document(other), world_of(4));
  ASSERT_TRUE(picked.found()) << picked.reason;
  EXPECT_EQ(picked.mesh.to_string(), pick_mesh(document(), world_of(4)).mesh.to_string());
  const auto config = config_of(other, picked);
  EXPECT_TRUE(config.trainer.stages.placement.empty());
  EXPECT_EQ(config.trainer.stages.schedule, "1f1b");
  EXPECT_EQ(config.mesh, picked.mesh);
}

TEST(PickedMesh, SaysWhyNothingFits) {
  const auto none = pick_mesh(document(), world_of(2, std::int64_t{1} << 20));
  EXPECT_FALSE(none.found());
  const auto* why = "parameters) on 2 ranks of 1 MiB each, 8 rows of 64 tokens a step: nothing fits";
  EXPECT_NE(none.reason.find(why), std::string::npos) << none.reason;
  EXPECT_FALSE(none.remedy.empty());
}

TEST(PickedMesh, SaysWhichBatchWouldDivide) {
  const auto none = pick_mesh(document({"model.num_attention_heads=4", "model.num_key_value_heads=4"}), world_of(7));
  EXPECT_FALSE(none.found());
  EXPECT_NE(none.reason.find("a global batch of 8 on 7 cards"), std::string::npos) << none.reason;
}

}  // namespace picked_mesh_test
}  // namespace orthant
