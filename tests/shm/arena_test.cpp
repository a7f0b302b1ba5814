// Shared memory: blocks, names, and that both sides see the same bytes.
#include "orthant/shm/arena.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <random>

#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"

namespace orthant::shm {
namespace {

TEST(Arena, HandsOutAlignedBlocksThatDoNotOverlapAndReusesFreedOnes) {
  Arena arena(8 << 20);
  std::mt19937 random(1);
  std::map<std::byte*, size_t> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() > 40 || (!blocks.empty() && random() % 3 == 0)) {
      const auto victim = std::next(blocks.begin(), static_cast<std::ptrdiff_t>(random() % blocks.size()));
      arena.release(victim->first);
      blocks.erase(victim);
      continue;
    }
    const size_t bytes = 1 + random() % 150000;
    auto* block = arena.allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kAlignment, 0U);
    const auto next = blocks.lower_bound(block);
    if (next != blocks.end()) {
      EXPECT_LE(block + bytes, next->first);
    }
    if (next != blocks.begin()) {
      EXPECT_GE(block, std::prev(next)->first + std::prev(next)->second);
    }
    blocks[block] = bytes;
  }
  for (const auto& [block, bytes] : blocks) arena.release(block);
  EXPECT_NO_THROW(arena.release(arena.allocate(8 << 20)));  // everything has been joined again
}

TEST(Arena, RefusesMoreThanItHoldsAndABlockReleasedTwice) {
  Arena arena(1 << 20);
  EXPECT_THROW(arena.allocate(2 << 20), CommError);
  auto* block = arena.allocate(100);
  arena.release(block);
  EXPECT_THROW(arena.release(block), InternalError);
}

struct Number {
  std::atomic<int> value{0};
};

TEST(Arena, PublishedNamesAreFoundByThreadsAtTheSameAddress) {
  Arena arena(1 << 20);
  const ArenaView view(Mapping::open(arena.mapping().description()));
  EXPECT_EQ(view.find(stable_hash("a")), nullptr);
  auto* number = arena.publish<Number>("a", 64);
  EXPECT_EQ(view.find(stable_hash("a")), reinterpret_cast<std::byte*>(number));
}

TEST(Arena, AnotherProcessOpensItThroughProcAndSeesWrites) {
  Arena arena(1 << 20);
  auto* number = arena.publish<Number>("n", 0);
  const auto description = arena.mapping().description();
  const pid_t child = fork();
  if (child == 0) {
    // A mapping of its own: the inherited one is forgotten by opening under the parent's number.
    const ArenaView view(Mapping::open(description));
    reinterpret_cast<Number*>(view.find(stable_hash("n")))->value = 42;
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  EXPECT_EQ(number->value.load(), 42);
}

TEST(Mapping, SaysWhoseMemoryCannotBeOpened) {
  try {
    Mapping::open("999999999 3 4096");
    FAIL();
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("process 999999999"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace orthant::shm
