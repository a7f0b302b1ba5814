#include "orthant/train/output_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <latch>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "train/training_ranks.h"

namespace orthant {
namespace {

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

}  // namespace
}  // namespace orthant
