// What is said of a configuration that is accepted: settings without effect, and shards over dp.
#include "orthant/train/config_notes.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "files/temporary_folder.h"

namespace orthant {
namespace config_notes_test {

using Lines = std::vector<std::string>;

Lines notes_of(const std::string& path, const std::vector<std::string>& overrides) {
  const auto document = load_run_document(path, overrides);
  return config_notes(document, read_run_config(document));
}

Lines notes(std::vector<std::string> overrides) {
  overrides.insert(overrides.begin(), {"model.kind=llama", "model.preset=llama-tiny", "data.kind=tokens",
                                       "data.samples=64", "train.global_batch_size=8"});
  return notes_of("", overrides);
}

// The notes on a run's own resolved configuration, read again with further overrides.
Lines notes_again(const std::vector<std::string>& overrides, const std::vector<std::string>& further = {}) {
  const auto document = load_run_document("", overrides);
  read_run_config(document);
  const test::TemporaryFolder folder;
  const auto path = (folder / "config.json").string();
  std::ofstream(path) << resolved_config(document);
  return notes_of(path, further);
}

const std::vector<std::string> kLlamaText = {"model.kind=llama", "model.preset=llama-tiny", "data.kind=text",
                                             "data.path=corpus.txt", "train.global_batch_size=8"};
const std::vector<std::string> kTable = {
    "data.kind=trimodal",       "data.path=rows.csv",        "data.label=y",
    "data.primary_text=a",      "data.secondary_text=b",     R"(data.tabular=["c","d","e","f","g","h","i","j"])",
    "data.primary_tokenizer=t", "data.secondary_tokenizer=t"};

TEST(ConfigNotes, SettingsOfCpHaveNoEffectWithoutItAndShardsOverItNoneWithoutFsdp) {
  EXPECT_EQ(notes({"parallel.context=ring", "parallel.shard_over_context=false"}),
            Lines{"note: parallel.context, parallel.shard_over_context: no effect, mesh.cp is 1"});
  EXPECT_EQ(notes({"mesh.cp=2", "parallel.context=ring", "parallel.shard_over_context=false", "parallel.bucket_mb=1"}),
            Lines{"note: parallel.shard_over_context: no effect, mesh.fsdp is 1 and parameters are whole over cp"});
}

TEST(ConfigNotes, TheEmbeddedDefaultHasNone) {
  EXPECT_EQ(notes_of("", {}), Lines());
  EXPECT_EQ(notes_of("", {"data.eval_fraction=0"}), Lines());
  EXPECT_EQ(notes_of("", {"optimizer.kind=sgd"}), Lines());
}

TEST(ConfigNotes, AResolvedConfigurationHasNone) {
  EXPECT_EQ(notes_again({}), Lines());
  EXPECT_EQ(notes_again({"data.eval_fraction=0"}), Lines());
  EXPECT_EQ(notes_again({"optimizer.kind=sgd"}), Lines());
  EXPECT_EQ(notes_again({"mesh.dp=2"}), Lines());
  EXPECT_EQ(notes_again(kLlamaText), Lines());
  EXPECT_EQ(notes_again(kTable), Lines());
}

TEST(ConfigNotes, WhatIsGivenBesideAResolvedConfigurationIsNamed) {
  const Lines evaluation{
      "note: train.eval_every: no effect, there are no data to evaluate on: set data.eval_fraction or eval_path"};
  EXPECT_EQ(notes_again({"data.eval_fraction=0"}, {"train.eval_every=100"}), evaluation);
  EXPECT_EQ(notes_again({"data.eval_fraction=0", "train.eval_every=7"}), evaluation);
  EXPECT_EQ(notes_again(kLlamaText, {"parallel.bucket_mb=25", "parallel.comm_hook=bf16"}),
            Lines{"note: parallel.comm_hook: no effect, mesh.dp and mesh.fsdp are 1"});
}

TEST(ConfigNotes, AMeshHasNone) {
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
  EXPECT_EQ(notes({"parallel.bucket_mb=25", "lr_schedule.decay_steps=-1", "parallel.placement=[]", "parallel.plan={}"}),
            Lines());
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
  EXPECT_EQ(notes({"precision.loss_scale=1024"}),
            Lines{"note: precision.loss_scale: no effect, precision.compute is float32: only gradients in float16 "
                  "underflow"});
  EXPECT_EQ(notes({"precision.loss_scale=1024", "precision.compute=float16"}), Lines());
  EXPECT_EQ(notes({"precision.reduce=bfloat16"}), Lines());  // gradients are kept in it on one rank, too
  EXPECT_EQ(notes({"train.join_head_and_loss=off", "train.loss_chunk_rows=64"}),
            Lines{"note: train.loss_chunk_rows: no effect, train.join_head_and_loss is off"});
  EXPECT_EQ(notes({"parallel.split_memory_gb=4"}), Lines{"note: parallel.split_memory_gb: no effect, mesh.pp is 1"});
  EXPECT_EQ(notes({"lr_schedule.decay_steps=5"}),
            Lines{"note: lr_schedule.decay_steps: no effect, lr_schedule.kind is not wsd"});
}

TEST(ConfigNotes, AnExplicitZeroShardsOverDp) {
  EXPECT_EQ(notes({"mesh.dp=4", "parallel.zero=2"}),
            Lines{"note: parallel.zero=2 shards over dp: mesh dp=4 trains as fsdp=4"});
}

}  // namespace config_notes_test
}  // namespace orthant
