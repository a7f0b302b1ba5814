// Saves in the background: what is saved is the moment of begin(), whatever the trainer does meanwhile.
#include "orthant/checkpoint/saver.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>

#include "checkpoint/model_on_disk.h"
#include "orthant/base/error.h"
#include "train/training_ranks.h"

namespace orthant {
namespace saver_test {

namespace fs = std::filesystem;

std::uint64_t hash_of(const RunConfig& config, const std::string& folder) {
  const auto trainer = make_trainer(config);
  load_checkpoint(*trainer, folder);
  return trainer->weights_hash();
}

class SaverOnRanks : public testing::TestWithParam<MeshCase> {};

TEST_P(SaverOnRanks, SavesTheMomentOfBeginWhileTrainingGoesOn) {
  const TestFolder folder("orthant-saver");
  on_ranks(tiny_llama(GetParam()), [&](const RunConfig& config) {
    auto data_config = config;
    const auto data = make_run_data(data_config);
    const auto loader = make_loader(data_config, data, 0);
    const auto trainer = make_trainer(config);
    CheckpointSaver saver(*trainer, /*asynchronous=*/true);
    for (int save = 1; save <= 3; ++save) {
      trainer->step(loader->next()).get();
      const auto expected = trainer->weights_hash();
      const auto path = (folder.path / ("saved-" + std::to_string(save))).string();
      saver.begin(path, {.cursor = {}, .files = {{"note.txt", "hello"}}, .eval_loss = 0.25});
      EXPECT_TRUE(saver.under_way());
      std::optional<SaveOutcome> outcome;
      // Steps carry who is busy.
      while (!outcome) {
        const auto numbers = trainer->step(loader->next(), {.saving = saver.busy()}).get();
        if (!numbers.saving) outcome = saver.advance();
      }
      ASSERT_TRUE(outcome);
      EXPECT_FALSE(outcome->failed);
      EXPECT_FALSE(saver.under_way());
      EXPECT_NE(trainer->weights_hash(), expected);
      EXPECT_EQ(hash_of(config, path), expected);
      EXPECT_EQ(read_manifest(path).eval_loss, 0.25);
      EXPECT_FALSE(saver.finish());
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Meshes, SaverOnRanks,
                         testing::Values(MeshCase{"dp=1"}, MeshCase{"dp=2"}, MeshCase{"fsdp=2", 3}, MeshCase{"tp=2"},
                                         MeshCase{"pp=2"}));

TEST(Saver, AnUpdateWaitsForWhoReadsTheParameters) {
  auto config = tiny_llama({"dp=1"});
  const auto data = make_run_data(config);
  const auto loader = make_loader(config, data, 0);
  const auto trainer = make_trainer(config);
  trainer->step(loader->next()).get();
  std::promise<void> read;
  trainer->hold_update(read.get_future().share());
  auto step = std::async(std::launch::async, [&] { return trainer->step(loader->next()).get().loss; });
  EXPECT_EQ(step.wait_for(std::chrono::milliseconds(300)), std::future_status::timeout);
  read.set_value();
  step.get();
  EXPECT_GE(trainer->seconds_held(), 0.1);
  EXPECT_EQ(trainer->steps_done(), 2);
}

TEST(Saver, WhatFailsBesideItIsToldAndTheCheckpointIsThere) {
  const TestFolder folder("orthant-saver");
  const auto trainer = make_trainer(tiny_llama({"dp=1"}));
  CheckpointSaver saver(*trainer, /*asynchronous=*/true);
  const auto path = (folder.path / "step-0").string();
  SavedBeside beside;
  beside.before_commit = [&] {
    EXPECT_FALSE(fs::exists(path));
    throw DataError("metrics");
  };
  beside.afterwards = [&] {
    EXPECT_TRUE(fs::exists(path));
    throw DataError("old ones");
  };
  saver.begin(path, std::move(beside));
  const auto outcome = saver.finish();
  ASSERT_TRUE(outcome && !outcome->failed);
  EXPECT_EQ(outcome->before_commit_failed, "metrics");
  EXPECT_EQ(outcome->afterwards_failed, "old ones");
  EXPECT_EQ(verify_checkpoint(path).step, 0);
}

// The folder cannot be made on rank 0: all ranks learn it, and the next save works.
TEST(Saver, ASaveThatCannotBeginFailsOnAllRanksAndTheNextOneWorks) {
  const TestFolder folder("orthant-saver");
  std::ofstream(folder.path / "file") << "in the way";
  for (const bool asynchronous : {false, true}) {
    on_ranks(tiny_llama({"dp=2"}), [&](const RunConfig& config) {
      const auto trainer = make_trainer(config);
      CheckpointSaver saver(*trainer, asynchronous);
      saver.begin((folder.path / "file" / "step-1").string(), {});
      const auto refused = saver.finish();
      ASSERT_TRUE(refused && refused->failed);
      try {
        std::rethrow_exception(refused->failed);
      } catch (const DataError& error) {
        EXPECT_EQ(error.rank(), 0);
        EXPECT_NE(error.message().find("file/step-1"), std::string::npos) << error.message();
      }
      const auto path = (folder.path / (asynchronous ? "later" : "now")).string();
      saver.begin(path, {});
      const auto saved = saver.finish();
      ASSERT_TRUE(saved);
      EXPECT_FALSE(saved->failed);
      EXPECT_EQ(hash_of(config, path), trainer->weights_hash());
    });
  }
}

}  // namespace saver_test
}  // namespace orthant
