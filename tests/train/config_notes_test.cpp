// What is said of a configuration that is accepted: settings without effect, and shards over dp.
#include "orthant/train/config_notes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace orthant {
namespace config_notes_test {

using Lines = std::vector<std::string>;

Lines notes(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"model.kind=llama", "model.preset=llama-tiny", "data.kind=tokens",
                                       "data.samples=64", "train.global_batch_size=8", "train.eval_every=0"});
  const auto document = load_run_document("", overrides);
  return config_notes(document, read_run_config(document));
}

TEST(ConfigNotes, ADefaultHasNone) {
  EXPECT_EQ(notes({}), Lines());
  EXPECT_EQ(notes({"mesh.fsdp=2"}), Lines());
  EXPECT_EQ(notes({"mesh.dp=2"}), Lines());
  EXPECT_EQ(notes({"mesh.pp=2", "parallel.microbatches=4"}), Lines());
}

TEST(ConfigNotes, SettingsOfAnAxisThatIsNotThereHaveOneLine) {
  EXPECT_EQ(notes({"parallel.zero=2", "parallel.accumulate=sharded"}),
            Lines{"note: parallel.zero, parallel.accumulate: no effect, mesh.fsdp is 1"});
  EXPECT_EQ(notes({"mesh.dp=2", "parallel.keep_gathered=true"}),
            Lines{"note: parallel.keep_gathered: no effect, mesh.fsdp is 1 and parallel.zero does not shard over dp"});
  EXPECT_EQ(notes({"parallel.bucket_mb=1"}), Lines{"note: parallel.bucket_mb: no effect, mesh.dp and mesh.fsdp are 1"});
  EXPECT_EQ(notes({"parallel.sequence_parallel=true", R"(parallel.plan={"mlp":"replicate"})"}),
            Lines{"note: parallel.sequence_parallel, parallel.plan: no effect, mesh.tp is 1"});
  EXPECT_EQ(notes({"parallel.schedule=zbv"}), Lines{"note: parallel.schedule: no effect, mesh.pp is 1"});
}

TEST(ConfigNotes, WhatAsksForNothingIsNotNamed) {
  EXPECT_EQ(notes({"parallel.zero=0", "parallel.schedule=1f1b", "parallel.sequence_parallel=false"}), Lines());
}

TEST(ConfigNotes, APipelineOfOneMicrobatchWaits) {
  EXPECT_EQ(notes({"mesh.pp=2"}),
            Lines{"note: parallel.microbatches is 1 with mesh.pp 2: no two stages work at the same time; set "
                  "parallel.microbatches=8"});
  EXPECT_EQ(notes({"mesh.pp=2", "train.global_batch_size=1"}),
            Lines{"note: parallel.microbatches is 1 with mesh.pp 2: no two stages work at the same time; raise "
                  "train.global_batch_size: a replica has 1 of its rows"});
}

TEST(ConfigNotes, OtherSettingsThatDoNothing) {
  EXPECT_EQ(notes({"mesh.tp=2", "parallel.regather=true"}),
            Lines{"note: parallel.regather: no effect, without parallel.sequence_parallel every rank has all tokens"});
  EXPECT_EQ(notes({"mesh.fsdp=2", "parallel.zero=2", "parallel.offload=params"}),
            Lines{"note: parallel.offload=params: below parallel.zero 3 it is optimizer"});
  EXPECT_EQ(notes({"data.eval_fraction=0", "train.eval_every=5"}),
            Lines{"note: train.eval_every: no effect, there are no data to evaluate on: set data.eval_fraction or "
                  "eval_path"});
  EXPECT_EQ(notes({"lr_schedule.decay_steps=5"}),
            Lines{"note: lr_schedule.decay_steps: no effect, lr_schedule.kind is not wsd"});
}

TEST(ConfigNotes, AnExplicitZeroShardsOverDp) {
  EXPECT_EQ(notes({"mesh.dp=4", "parallel.zero=2"}),
            Lines{"note: parallel.zero=2 shards over dp: mesh dp=4 trains as fsdp=4"});
}

}  // namespace config_notes_test
}  // namespace orthant
