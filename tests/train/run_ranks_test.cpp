// Whole runs on the ranks of a mesh: what they agree on.
#include <gtest/gtest.h>

#include <mutex>
#include <sstream>

#include "orthant/base/error.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/files/whole_file.h"
#include "train/training_ranks.h"

namespace orthant {
namespace run_ranks_test {

constexpr const char* kResolved = R"({"model": {}})";

TEST(RunRanks, OneThatIsAskedToStopStopsAllAfterTheSameStep) {
  const TestFolder folder("orthant-run-ranks");
  std::mutex mutex;
  std::vector<RunOutcome> outcomes;
  std::string reported;
  on_ranks(tiny_llama({"dp=2,fsdp=2", 3}), [&](const RunConfig& config) {
    RunOptions options;
    options.output_dir = (folder.path / "run").string();
    int asked = 0;
    options.stop_requested = [&] { return ++asked >= 5 && rank_of(config) == 3; };  // once before the first step
    std::ostringstream out;
    const auto outcome = run_training(config, kResolved, options, out);
    const std::lock_guard lock(mutex);
    outcomes.push_back(outcome);
    if (rank_of(config) == 0) reported = out.str();
  });
  ASSERT_EQ(outcomes.size(), 4U);
  // Told with the fourth step, known after it.
  for (const auto& outcome : outcomes) {
    EXPECT_TRUE(outcome.stopped);
    EXPECT_EQ(outcome.result.steps, 4);
    EXPECT_EQ(outcome.result.weights_hash, outcomes.front().result.weights_hash);
  }
  EXPECT_NE(reported.find("\nmesh dp=2,fsdp=2, zero 3: this rank updates "), std::string::npos) << reported;
  const auto saved = list_checkpoints((folder.path / "run" / "checkpoints").string());
  ASSERT_EQ(saved.size(), 1U);
  EXPECT_EQ(verify_checkpoint(saved.front().path).step, 4);
  for (int rank = 0; rank < 4; ++rank) {
    const auto log = read_file(folder.path / "run" / "log" / ("rank-" + std::to_string(rank) + ".log"));
    EXPECT_NE(log.find("rank " + std::to_string(rank) + " of 4 started"), std::string::npos) << log;
    EXPECT_NE(log.find("stopped on request after step 4\n"), std::string::npos) << log;
  }
}

TEST(RunRanks, ThatFoundAnotherKeyAreRefused) {
  const TestFolder folder("orthant-run-ranks");
  for (const char letter : {'a', 'b'}) {
    write_file_atomically(folder.path / std::string(1, letter), std::string(32, letter));
    std::filesystem::permissions(folder.path / std::string(1, letter), std::filesystem::perms::owner_read);
  }
  const auto errors = try_on_ranks(tiny_llama({"dp=2"}), [&](const RunConfig& config) {
    auto mine = config;
    mine.checkpoint.key_file = (folder.path / (rank_of(config) == 1 ? "b" : "a")).string();
    RunOptions options;
    options.output_dir = (folder.path / "run").string();
    std::ostringstream out;
    run_training(mine, kResolved, options, out);
  });
  for (const auto& error : errors) {
    try {
      if (error) std::rethrow_exception(error);
      ADD_FAILURE() << "no error";
    } catch (const ConfigError& thrown) {
      EXPECT_EQ(thrown.message(), "checkpoint.key_file: has another key than on rank 0");
      EXPECT_EQ(thrown.rank(), 1);
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path / "run"));
}

TEST(RunRanks, ThatFoundOtherDataAreRefused) {
  const TestFolder folder("orthant-run-ranks");
  const auto errors = try_on_ranks(tiny_llama({"dp=3"}), [&](const RunConfig& config) {
    auto mine = config;
    if (rank_of(config) == 2) mine.data.samples = 60;
    RunOptions options;
    options.output_dir = (folder.path / "run").string();
    std::ostringstream out;
    run_training(mine, kResolved, options, out);
  });
  for (const auto& error : errors) {
    try {
      if (error) std::rethrow_exception(error);
      ADD_FAILURE() << "no error";
    } catch (const DataError& thrown) {
      EXPECT_STREQ(thrown.what(),
                   "rank 2: found other data than rank 0: 60 samples to train on and 15 to evaluate on instead of 48 "
                   "samples to train on and 12 to evaluate on\n  fix: let every rank read the same files");
    }
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path / "run"));
}

}  // namespace run_ranks_test
}  // namespace orthant
