#include "orthant/train/checkpoint_retention.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "orthant/layout/manifest.h"
#include "train/training_ranks.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

using Steps = std::vector<std::int64_t>;

std::vector<RankedCheckpoint> steps(const Steps& found) {
  std::vector<RankedCheckpoint> checkpoints;
  for (const auto step : found) checkpoints.push_back({step, std::nullopt});
  return checkpoints;
}

TEST(KeepRules, KeepTheNewest) {
  EXPECT_EQ(steps_to_remove(steps({1, 2, 3, 4}), {.last = 3}), Steps({1}));
  EXPECT_EQ(steps_to_remove(steps({4, 1, 3, 2}), {.last = 1}), Steps({3, 2, 1}));
  EXPECT_EQ(steps_to_remove(steps({4, 5}), {.last = 3}), Steps());
  EXPECT_EQ(steps_to_remove({}, {.last = 1}), Steps());
}

TEST(KeepRules, KeepMultiplesForever) {
  EXPECT_EQ(steps_to_remove(steps({0, 5, 10, 15, 20, 25}), {.last = 1, .every = 10}), Steps({15, 5}));
}

TEST(KeepRules, KeepTheBestOfThoseThatWereEvaluated) {
  const std::vector<RankedCheckpoint> found = {{1, 0.5}, {2, 0.3}, {3, 0.4}, {4, std::nullopt}, {5, 0.9}};
  EXPECT_EQ(steps_to_remove(found, {.last = 1, .best = 1}), Steps({4, 3, 1}));
  EXPECT_EQ(steps_to_remove(found, {.last = 1, .best = 2}), Steps({4, 1}));
  EXPECT_EQ(steps_to_remove({{1, 0.3}, {2, 0.3}, {3, 0.5}}, {.last = 1, .best = 1}), Steps({1}));
}

void make_checkpoint(const fs::path& folder, double eval_loss) {
  fs::create_directories(folder);
  Manifest manifest;
  const auto name = folder.filename().string();
  manifest.step = step_in_name(name.substr(0, name.find('.'))).value();
  manifest.eval_loss = eval_loss;
  std::ofstream(folder / "manifest.json") << to_json(manifest);
}

TEST(Prune, RemovesWhatNoRuleKeepsAndWhatWasLeftHalfDone) {
  const TestFolder folder("orthant-retention");
  for (const int step : {2, 4, 6, 8, 10}) {
    make_checkpoint(folder.path / ("step-" + std::to_string(step)), step == 4 ? 0.1 : 1.0);
  }
  for (const char* name : {"step-6.new", "step-1.removed", "step-12.partial-999999999"}) {
    fs::create_directories(folder.path / name);
  }
  fs::create_directories(folder.path / "step-x");
  std::ofstream(folder.path / "notes.txt") << "mine";
  prune_checkpoints(folder.path.string(), {.last = 1, .every = 8, .best = 1});
  std::set<std::string> left;
  for (const auto& item : fs::directory_iterator(folder.path)) left.insert(item.path().filename().string());
  EXPECT_EQ(left, std::set<std::string>({"step-4", "step-8", "step-10", "step-x", "notes.txt"}));
}

TEST(Prune, GivesAReplacedOneItsNameBack) {
  const TestFolder folder("orthant-retention");
  make_checkpoint(folder.path / "step-2", 1);
  make_checkpoint(folder.path / "step-4.new", 1);  // a death came when step-4 had been moved aside
  make_checkpoint(folder.path / "step-4.removed", 1);
  restore_checkpoints(folder.path.string());
  ASSERT_EQ(list_checkpoints(folder.path.string()).size(), 2U);
  prune_checkpoints(folder.path.string(), {.last = 1});
  ASSERT_EQ(list_checkpoints(folder.path.string()).size(), 1U);
  EXPECT_EQ(list_checkpoints(folder.path.string()).front().step, 4);
}

TEST(Prune, DropsLaterOnesAndSaysWhich) {
  const TestFolder folder("orthant-retention");
  for (const int step : {2, 4, 6}) make_checkpoint(folder.path / ("step-" + std::to_string(step)), 1);
  EXPECT_EQ(drop_checkpoints_after(folder.path.string(), 2), Steps({6, 4}));
  ASSERT_EQ(list_checkpoints(folder.path.string()).size(), 1U);
}

}  // namespace
}  // namespace orthant
