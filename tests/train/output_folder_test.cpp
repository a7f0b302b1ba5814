#include "orthant/train/output_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/error_text.h"
#include "orthant/files/whole_file.h"
#include "train/training_ranks.h"

namespace orthant {
namespace output_folder_test {

namespace fs = std::filesystem;

// Runs are numbered in the current folder.
class OutputFolders : public testing::Test {
 protected:
  OutputFolders() : before_(fs::current_path()), folder_("orthant-output-folder") { fs::current_path(folder_.path); }
  ~OutputFolders() override { fs::current_path(before_); }

  const fs::path before_;
  const TestFolder folder_;
};

TEST_F(OutputFolders, TwentyStartsAtOnceClaimNumbersOfTheirOwn) {
  constexpr int kStarts = 20;
  std::latch chosen(kStarts);
  std::mutex mutex;
  std::set<std::string> claimed;
  std::vector<std::jthread> starts;
  for (int i = 0; i < kStarts; ++i) {
    starts.emplace_back([&] {
      OutputFolder folder("", "race", {});
      chosen.arrive_and_wait();
      folder.claim();
      const std::lock_guard lock(mutex);
      claimed.insert(folder.path());
    });
  }
  starts.clear();
  EXPECT_EQ(claimed.size(), kStarts);
  EXPECT_TRUE(claimed.contains("runs/race-1") && claimed.contains("runs/race-20"));
}

TEST_F(OutputFolders, ChoosingMakesNothing) {
  EXPECT_EQ(OutputFolder("", "quiet", {}).path(), "runs/quiet-1");
  EXPECT_EQ(OutputFolder("", "quiet", {}).path(), "runs/quiet-1");
  EXPECT_TRUE(fs::is_empty(folder_.path));
}

TEST_F(OutputFolders, MetricsAloneAreARun) {
  fs::create_directories("run");
  write_file_atomically("run/metrics.jsonl", "{\"step\":1");
  OutputFolder("run", "", {});  // torn: no step was told
  write_file_atomically("run/metrics.jsonl", "{\"step\":1}\n");
  EXPECT_EQ(error_text<ConfigError>([] { OutputFolder("run", "", {}); }),
            "output folder run holds a run without a checkpoint\n  fix: begin it again at step 0 with --resume auto "
            "--from-scratch, or name another --output-dir");
}

TEST_F(OutputFolders, AConfigurationOfAnotherFormIsNoneToCompareWith) {
  const std::string checkpoint = "run/checkpoints/step-3";
  fs::create_directories(checkpoint);
  Manifest manifest;
  manifest.step = 3;
  write_file_atomically(checkpoint + "/manifest.json", to_json(manifest));
  const OutputFolder folder("run", "", {.resume = "auto"});
  for (const char* text : {R"({"model": 1})", R"({"data": 5})", R"({"model": [], "data": "x"})", "[1]", "7"}) {
    write_file_atomically("run/config.json", text);
    folder.check_same_run(checkpoint, R"({"model": {"a": 1}, "data": {}})", {});
  }
  write_file_atomically("run/config.json", R"({"model": {"a": 2}})");
  EXPECT_THROW(folder.check_same_run(checkpoint, R"({"model": {"a": 1}, "data": {}})", {}), DataError);
}

// What cannot be set aside shows before a checkpoint has lost its name.
TEST_F(OutputFolders, LinesThatCannotBeReadLeaveCheckpointsTheirNames) {
  for (const char* step : {"step-2", "step-4"}) fs::create_directories(fs::path("run/checkpoints") / step);
  write_file_atomically("run/metrics.jsonl", "{\"step\":1}\n{\"step\":3}\n");
  const OutputFolder folder("run", "", {.resume = "auto"});
  write_file_atomically("run/eval.jsonl", "no JSON\n");
  EXPECT_THROW(folder.supersede_after(2), DataError);
  EXPECT_TRUE(fs::exists("run/checkpoints/step-4"));
  EXPECT_EQ(read_file("run/metrics.jsonl"), "{\"step\":1}\n{\"step\":3}\n");
  write_file_atomically("run/eval.jsonl", "{\"step\":2}\n{\"step\":4}\n");
  EXPECT_EQ(folder.supersede_after(2),
            (std::vector<std::string>{"run/checkpoints/step-4.superseded stays until the next save: this run takes "
                                      "another way from here"}));
  EXPECT_EQ(read_file("run/metrics.jsonl"), "{\"step\":1}\n");
  EXPECT_EQ(read_file("run/metrics.jsonl.superseded"), "{\"step\":3}\n");
  EXPECT_EQ(read_file("run/eval.jsonl.superseded"), "{\"step\":4}\n");
}

TEST_F(OutputFolders, ALinkInThePlaceOfCheckpointsIsNotPruned) {
  fs::create_directories("run");
  fs::create_directories("elsewhere/step-1");
  fs::create_directories("elsewhere/step-2");
  const OutputFolder folder("run", "", {});
  fs::create_directory_symlink(fs::absolute("elsewhere"), "run/checkpoints");
  EXPECT_THROW(folder.after_save({.last = 1}, false), ConfigError);
  EXPECT_TRUE(fs::exists("elsewhere/step-1"));
}

}  // namespace output_folder_test
}  // namespace orthant
