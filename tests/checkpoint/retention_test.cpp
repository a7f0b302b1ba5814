#include "orthant/checkpoint/retention.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>

#include "orthant/base/error.h"
#include "orthant/layout/manifest.h"
#include "train/training_ranks.h"

namespace orthant {
namespace retention_test {

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

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& item : fs::directory_iterator(folder)) names.insert(item.path().filename().string());
  return names;
}

TEST(Supersede, GivesNamesBackAndSaysWhichDidNotComeBack) {
  const TestFolder folder("orthant-retention");
  const auto parent = folder.path.string();
  for (const int step : {2, 4, 6}) make_checkpoint(folder.path / ("step-" + std::to_string(step)), 1);
  std::vector<std::string> aside;
  supersede_checkpoints_after(parent, 2, aside);
  make_checkpoint(folder.path / "step-4", 1);
  restore_superseded(aside);
  EXPECT_EQ(aside, (std::vector<std::string>{parent + "/step-4.superseded"}));
  EXPECT_EQ(names_in(folder.path), std::set<std::string>({"step-2", "step-4", "step-4.superseded", "step-6"}));
}

TEST(Supersede, KeepsLaterOnesUntilTheNextSave) {
  const TestFolder folder("orthant-retention");
  const auto parent = folder.path.string();
  for (const int step : {2, 4, 6}) make_checkpoint(folder.path / ("step-" + std::to_string(step)), 1);
  std::vector<std::string> aside;
  supersede_checkpoints_after(parent, 2, aside);
  EXPECT_EQ(aside, (std::vector<std::string>{parent + "/step-6.superseded", parent + "/step-4.superseded"}));
  make_checkpoint(folder.path / "step-4", 1);
  aside.clear();
  supersede_checkpoints_after(parent, 2, aside);
  EXPECT_EQ(aside, (std::vector<std::string>{parent + "/step-4.superseded-2"}));
  EXPECT_EQ(names_in(folder.path),
            std::set<std::string>({"step-2", "step-4.superseded", "step-4.superseded-2", "step-6.superseded"}));
  EXPECT_EQ(superseded_checkpoints(parent).size(), 3U);
  ASSERT_EQ(list_checkpoints(parent).size(), 1U);
  make_checkpoint(folder.path / "step-4", 1);
  prune_checkpoints(parent, {.last = 3});
  EXPECT_EQ(names_in(folder.path), std::set<std::string>({"step-2", "step-4"}));
}

TEST(Refused, OnesOfOneStepAllStay) {
  const TestFolder folder("orthant-retention");
  for (const char* expected : {"step-4.refused", "step-4.refused-2", "step-4.refused-3"}) {
    make_checkpoint(folder.path / "step-4", 1);
    EXPECT_EQ(set_aside_refused((folder.path / "step-4").string()), (folder.path / expected).string());
  }
  make_checkpoint(folder.path / "step-6", 1);
  prune_checkpoints(folder.path.string(), {.last = 1});
  EXPECT_EQ(names_in(folder.path),
            std::set<std::string>({"step-4.refused", "step-4.refused-2", "step-4.refused-3", "step-6"}));
}

TEST(Prune, RemovesHalfRemovedOnesWhateverTheirAge) {
  const TestFolder folder("orthant-retention");
  make_checkpoint(folder.path / "step-8", 1);
  for (const char* name : {"step-1.removed", "step-2.removed-2", "step-4.superseded.removed", "step-8.replaced"}) {
    make_checkpoint(folder.path / name, 1);
    fs::last_write_time(folder.path / name, fs::file_time_type::clock::now() - std::chrono::hours(10000));
  }
  prune_checkpoints(folder.path.string(), {.last = 1});
  EXPECT_EQ(names_in(folder.path), std::set<std::string>({"step-8"}));
}

TEST(List, WhatCannotBeListedIsNotEmpty) {
  const TestFolder folder("orthant-retention");
  EXPECT_TRUE(list_checkpoints((folder.path / "checkpoints").string()).empty());
  std::ofstream(folder.path / "checkpoints") << "a file";
  EXPECT_THROW(list_checkpoints((folder.path / "checkpoints").string()), IoError);
  EXPECT_THROW(restore_checkpoints((folder.path / "checkpoints").string()), IoError);
}

}  // namespace retention_test
}  // namespace orthant
