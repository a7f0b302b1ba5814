#include "orthant/train/output_folder.h"

#include <gtest/gtest.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <latch>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "base/error_text.h"
#include "orthant/files/replacing_folder.h"
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

// Every file of the run with its contents, and where every link leads.
std::map<std::string, std::string> contents_of(const fs::path& run) {
  std::map<std::string, std::string> contents;
  for (const auto& entry : fs::recursive_directory_iterator(run)) {
    auto& text = contents[entry.path()];
    if (entry.is_symlink()) {
      text = fs::read_symlink(entry.path());
    } else if (entry.is_regular_file()) {
      text = read_file(entry.path());
    }
  }
  return contents;
}

// What the process of an attempt does that is stopped in the middle of its run and goes on when another has begun: the
// number of the first thing that was not refused, counted from 1, or 0.
int write_late(const WriteFence& fence) {
  OutputFolder folder("run", "late", {.writer = {"ab", 0}});
  folder.open();
  folder.write("{}", {});
  folder.begin_unsaved();
  LineFile unfenced("run", "metrics.jsonl");
  LineFile metrics("run", "metrics.jsonl", fence);
  metrics.append("{\"step\":1}");
  auto checkpoint = std::make_unique<ReplacingFolder>("run/checkpoints/step-1");
  raise(SIGSTOP);
  const std::vector<std::function<void()>> writes = {
      [&] { folder.write("{\"late\":1}", {}); },
      [&] { folder.write_product_plans("{}"); },
      [&] { folder.begin_unsaved(); },
      [&] { folder.none_unsaved(); },
      [&] { folder.supersede_after(0); },
      [&] { folder.after_save({.last = 1}, false); },
      [&] { metrics.append("{\"step\":2}"); },
      [&] { LineFile("run", "log/rank-0.log", fence); },
      [&] { checkpoint->commit(); },  // it had asked the fence before
  };
  unfenced.append("{\"step\":2}");  // as had this one: nobody reads it
  for (std::size_t i = 0; i < writes.size(); ++i) {
    try {
      writes[i]();
      return static_cast<int>(i) + 1;
    } catch (const Error&) {
    }
  }
  return 0;
}

TEST_F(OutputFolders, AWriterThatWasStoppedWritesNothingOnceTheNextAttemptHasBegun) {
  const pid_t child = fork();
  if (child == 0) _exit(write_late(WriteFence("run", {"ab", 0})));
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  {
    OutputFolder next("run", "late", {.restarted = true, .writer = {"ab", 1}});
    EXPECT_NO_THROW(next.check_not_in_use());
    next.open();
  }
  const auto before = contents_of("run");
  kill(child, SIGCONT);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(contents_of("run"), before);
  EXPECT_EQ(read_file("run/metrics.jsonl"), "{\"step\":1}\n");
  EXPECT_TRUE(fs::is_empty("run/checkpoints"));
}

}  // namespace output_folder_test
}  // namespace orthant
