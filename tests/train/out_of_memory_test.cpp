// Ranks without memory: what their users are told. The control group of a real kernel is in tests/system.
#include "orthant/train/out_of_memory.h"

#include <ATen/ATen.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <functional>
#include <new>
#include <sstream>

#include "orthant/base/error_report.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/memory.h"
#include "train/training_ranks.h"

namespace orthant {
namespace out_of_memory_test {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Throws in the second step of rank 1 of two, and returns what that rank's run ended with.
std::string told(const std::function<void()>& fail, const TestFolder& folder) {
  const auto errors = try_on_ranks(tiny_llama({"dp=2"}), [&](const RunConfig& config) {
    RunOptions options;
    options.output_dir = (folder.path / "run").string();
    int asked = 0;
    options.stop_requested = [&] {
      if (++asked >= 4 && rank_of(config) == 1) fail();
      return false;
    };
    std::ostringstream out;
    run_training(config, R"({"model": {}})", options, out);
  });
  try {
    std::rethrow_exception(errors.at(1));
  } catch (const std::exception& error) {
    EXPECT_EQ(report_of(error).exit_code, 4);
    return error.what();
  }
}

void expect_line(const std::string& text) {
  const auto first = text.substr(0, text.find('\n'));
  EXPECT_TRUE(first.starts_with("rank 1: out of memory at dp=1 in ")) << text;
  EXPECT_NE(first.find(" in use"), std::string::npos) << text;
  const auto holders = first.find(" predicted; most is ");
  ASSERT_NE(holders, std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(first.substr(holders), ','), 2) << text;  // three
  EXPECT_NE(first.find(" of optimizer state", holders), std::string::npos) << text;
  EXPECT_NE(text.find("\n  fix: use less memory per rank, first what helps most here: "), std::string::npos) << text;
  EXPECT_EQ(text.find("frame #"), std::string::npos) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 1) << text;
}

TEST(OutOfMemory, OfACardIsOneLineAndTheFramesAreInTheLog) {
  const TestFolder folder("orthant-memory");
  expect_line(told([] { TORCH_CHECK_WITH(OutOfMemoryError, false, "CUDA out of memory. Tried to allocate 2.00 GiB."); },
                   folder));
  const auto log = read_file(folder.path / "run" / "log" / "rank-1.log");
  EXPECT_NE(log.find("CUDA out of memory. Tried to allocate 2.00 GiB."), std::string::npos) << log;
  EXPECT_NE(log.find("out of memory at dp=1"), std::string::npos) << log;
}

TEST(OutOfMemory, OfTheHostIsOneLineWhoeverThrowsIt) {
  for (const auto& fail : std::vector<std::function<void()>>{
           [] { throw std::bad_alloc(); },
           [] { TORCH_CHECK(false, "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes."); }}) {
    const TestFolder folder("orthant-memory");
    expect_line(told(fail, folder));
  }
}

TEST(OutOfMemory, OfATensorSaysHowMuchWasAskedFor) {
  auto& allocator = install_counting_allocator();
  const auto kept = at::empty({3 * kMiB}, at::kByte);
  EXPECT_THROW(at::empty({std::int64_t{1} << 50}, at::kByte), c10::OutOfMemoryError);
  EXPECT_EQ(allocator.last_refusal().bytes, std::int64_t{1} << 50);
  EXPECT_GE(allocator.last_refusal().live_bytes, 3 * kMiB);
  const auto in_use = memory_in_use(nullptr, at::kCPU);
  EXPECT_EQ(in_use.asked_bytes, std::int64_t{1} << 50);
  EXPECT_GE(in_use.bytes, allocator.last_refusal().live_bytes);
}

TEST(OutOfMemory, NamesThreeHoldersAndWhatHelpsAgainstTheLargest) {
  auto config = tiny_llama({"dp=1"});
  config.mesh = Mesh::parse("pp=2,dp=2");
  config.trainer.microbatches = 4;
  MemoryInUse in_use{.bytes = 100 * kMiB,
                     .asked_bytes = 8 * kMiB,
                     .holders = {{"optimizer state", 50 * kMiB},
                                 {"parameters", 25 * kMiB},
                                 {"gradients", 20 * kMiB},
                                 {"activations and temporary values", 5 * kMiB}}};
  const auto state = out_of_memory(config, 3, "step 7, F layers.1 m0", in_use);
  EXPECT_EQ(state.rank(), 3);
  EXPECT_EQ(state.exit_code(), 4);
  EXPECT_TRUE(state.message().starts_with(
      "out of memory at pp=1,dp=1 in step 7, F layers.1 m0: 100 MiB in use and 8 MiB more asked for, "))
      << state.message();
  EXPECT_TRUE(state.message().ends_with(
      " predicted; most is 50 MiB of optimizer state, 25 MiB of parameters, 20 MiB of gradients"))
      << state.message();
  EXPECT_TRUE(state.remedy().starts_with(
      "use less memory per rank, first what helps most here: shards instead of replicas (--mesh fsdp=N), "))
      << state.remedy();
  rlimit before = {};
  getrlimit(RLIMIT_DATA, &before);
  const rlimit limited{rlim_t{1} << 40, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &limited), 0);
  EXPECT_TRUE(out_of_memory(config, 3, "", in_use).message().ends_with("; its process may have 1 TiB (ulimit -d)"));
  setrlimit(RLIMIT_DATA, &before);
  std::ranges::reverse(in_use.holders);
  const auto activations = out_of_memory(config, 3, "", in_use);
  EXPECT_TRUE(activations.remedy().starts_with(
      "use less memory per rank, first what helps most here: --set parallel.microbatches=8 or more, "))
      << activations.remedy();
}

}  // namespace out_of_memory_test
}  // namespace orthant
