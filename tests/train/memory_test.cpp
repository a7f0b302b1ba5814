#include "orthant/train/memory.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <torch/csrc/autograd/variable.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "orthant/base/error_report.h"
#include "orthant/data/loader.h"
#include "orthant/data/tokens.h"

namespace orthant {
namespace memory_test {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Installed before any test makes a tensor.
CountingAllocator& allocator = install_counting_allocator();

// AddressSanitizer's malloc holds freed small blocks back: then what the system counts is not ours.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSystemCountsAreOurs = false;
#elif defined(__has_feature)
constexpr bool kSystemCountsAreOurs = !__has_feature(address_sanitizer);
#else
constexpr bool kSystemCountsAreOurs = true;
#endif

std::int64_t page_faults() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all_pages = 0;
  std::int64_t resident_pages = 0;
  file >> all_pages >> resident_pages;
  return resident_pages * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

TEST(CountingAllocator, TellsWhatItCountsWhereOthersCanReadIt) {
  static std::atomic<std::int64_t> gauge = -1;  // the allocator keeps it
  allocator.tell(gauge);
  const auto kept = at::empty({2 * kMiB}, at::kByte);
  EXPECT_EQ(gauge.load(), allocator.live_bytes());
  EXPECT_GE(gauge.load(), 2 * kMiB);
}

TEST(CountingAllocator, IsInstalledOnce) {
  EXPECT_EQ(&install_counting_allocator(), &allocator);
  EXPECT_EQ(c10::GetAllocator(c10::DeviceType::CPU), &allocator);
}

TEST(CountingAllocator, CountsWhatTensorsAskFor) {
  const std::int64_t before = allocator.live_bytes();
  {
    const at::Tensor large = at::empty({1024, 1024});
    EXPECT_EQ(allocator.live_bytes() - before, 4 * kMiB);
    const at::Tensor small = at::empty({10}, at::kDouble);
    EXPECT_EQ(allocator.live_bytes() - before, 4 * kMiB + 80);
    const at::Tensor view = large.narrow(0, 0, 10);
    const at::Tensor nothing = at::empty({0});
    EXPECT_EQ(allocator.live_bytes() - before, 4 * kMiB + 80);
  }
  EXPECT_EQ(allocator.live_bytes(), before);
}

TEST(CountingAllocator, RemembersThePeakUntilReset) {
  allocator.reset_peak();
  const std::int64_t before = allocator.live_bytes();
  EXPECT_EQ(allocator.peak_bytes(), before);
  {
    const at::Tensor passing = at::empty({3 * kMiB}, at::kByte);
  }
  const at::Tensor staying = at::empty({kMiB}, at::kByte);
  EXPECT_EQ(allocator.peak_bytes(), before + 3 * kMiB);
  allocator.reset_peak();
  EXPECT_EQ(allocator.peak_bytes(), before + kMiB);
}

TEST(CountingAllocator, BlocksAreAlignedAsLibtorchExpects) {
  for (std::int64_t bytes : {1, 63, 64, 1000, 262143, 262144, 262145, 5000000}) {
    const at::Tensor tensor = at::empty({bytes}, at::kByte);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0U) << bytes;
    tensor.fill_(1);
    EXPECT_EQ(tensor.sum().item<std::int64_t>(), bytes);
  }
}

TEST(CountingAllocator, StoragesGrowAndShrink) {
  const std::int64_t before = allocator.live_bytes();
  at::Tensor tensor = at::ones({100});
  tensor.resize_({1024, 1024});
  tensor.narrow(0, 1, 1023).fill_(2);
  EXPECT_EQ(tensor.flatten().narrow(0, 0, 100).sum().item<float>(), 100);
  EXPECT_EQ(allocator.live_bytes() - before, 4 * kMiB);
  tensor.storage().unsafeGetStorageImpl()->set_data_ptr_noswap(allocator.allocate(0));
  EXPECT_EQ(allocator.live_bytes(), before);
}

TEST(CountingAllocator, RawBlocksComeAndGo) {
  const std::int64_t before = allocator.live_bytes();
  void* block = allocator.raw_allocate(2 * kMiB);
  EXPECT_EQ(allocator.live_bytes() - before, 2 * kMiB);
  allocator.raw_deallocate(block);
  EXPECT_EQ(allocator.live_bytes(), before);
}

TEST(CountingAllocator, SaysHowMuchWasAskedForWhenThereIsNotEnough) {
  const std::int64_t before = allocator.live_bytes();
  try {
    const at::Tensor impossible = at::empty({std::int64_t{1} << 60}, at::kByte);
    FAIL() << "an exbibyte was allocated";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("out of memory: 1152921504606847040 bytes"), std::string::npos)
        << error.what();
    const auto report = report_of(error);
    EXPECT_EQ(report.exit_code, 4);
    EXPECT_EQ(report.message, "out of memory");
  }
  EXPECT_EQ(allocator.live_bytes(), before);
}

TEST(CountingAllocator, CountsExactlyFromManyThreads) {
  const std::int64_t before = allocator.live_bytes();
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      std::mt19937_64 random(i);
      std::vector<at::Tensor> held;
      for (int round = 0; round < 300; ++round) {
        held.push_back(at::full({static_cast<std::int64_t>(random() % 400000)}, static_cast<int>(i), at::kByte));
        if (held.size() > 5) held.erase(held.begin() + static_cast<std::ptrdiff_t>(random() % held.size()));
        for (const at::Tensor& tensor : held) {
          if (tensor.numel() == 0) continue;
          EXPECT_EQ(tensor[-1].item<std::uint8_t>(), i);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.live_bytes(), before);
}

// While it lives, malloc takes memory in advance as the program lets it.
struct TopPad {
  TopPad() { mallopt(M_TOP_PAD, 64 << 20); }
  ~TopPad() { mallopt(M_TOP_PAD, 128 << 10); }
};

TEST(CountingAllocator, BatchesThatAnotherThreadReadsTakeNoNewMemoryForEver) {
  const TopPad in_advance;
  const auto dataset = std::make_shared<TokensDataset>(TokensOptions{.vocab_size = 67, .sequence_length = 16});
  Loader loader(dataset, Sampler(dataset->size(), 4, /*seed=*/0));
  const auto take = [&](int steps) {
    for (int step = 0; step < steps; ++step) {
      const auto batch = loader.next();
      usleep(100);  // a step, in which the next batch is read
    }
  };
  take(300);
  const auto before = resident_bytes();
  take(3000);
  if (kSystemCountsAreOurs) EXPECT_LT(resident_bytes() - before, kMiB / 4) << "3000 batches of 1 KiB were read";
}

// One training step of layers of several widths.
void train_step(std::vector<at::Tensor>& weights, const at::Tensor& input) {
  at::Tensor hidden = input;
  for (at::Tensor& weight : weights) hidden = at::gelu(hidden.matmul(weight)) + hidden.mean(-1, true);
  hidden.square().mean().backward();
  for (at::Tensor& weight : weights) {
    weight.detach().add_(weight.grad(), -0.01);
    weight.mutable_grad().reset();
  }
}

TEST(CountingAllocator, ASteadyStepFaultsInNoNewPagesAndStaysNearItsPeak) {
  at::set_num_threads(1);
  std::vector<at::Tensor> weights;
  const std::vector<std::int64_t> widths = {256, 384, 512, 320, 640, 256, 512};
  for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
    weights.push_back(at::randn({widths[i], widths[i + 1]}).mul(0.05).requires_grad_());
  }
  const at::Tensor small_input = at::randn({8, widths[0]});
  train_step(weights, small_input);  // whatever libtorch sets up once
  allocator.trim();
  const at::Tensor input = at::randn({2048, widths[0]});
  allocator.reset_peak();
  const std::int64_t live_before = allocator.live_bytes();
  const std::int64_t resident_before = resident_bytes();
  for (int step = 0; step < 4; ++step) train_step(weights, input);
  const PageArena::Usage warm = allocator.arena_usage();
  const std::int64_t faults_before = page_faults();
  for (int step = 0; step < 4; ++step) train_step(weights, input);
  EXPECT_EQ(allocator.arena_usage().fresh_bytes, warm.fresh_bytes);
  const std::int64_t needed = allocator.peak_bytes() - live_before;
  ASSERT_GT(needed, 30 * kMiB);
  EXPECT_LE(warm.mapped_bytes, allocator.peak_bytes() + allocator.peak_bytes() / 20);
  if (kSystemCountsAreOurs) {
    EXPECT_LT(page_faults() - faults_before, 4 * 200) << "a step's blocks have some 10000 pages";
    EXPECT_LE(peak_resident_bytes() - resident_before, needed + needed / 10 + 4 * kMiB);
  }
}

}  // namespace memory_test
}  // namespace orthant
