#include "orthant/train/page_arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace orthant {
namespace page_arena_test {

constexpr std::size_t kMiB = std::size_t{1} << 20;

bool move_one_granule(void* from, std::size_t bytes, void* to) {
  return bytes <= PageArena::granule_bytes() &&
         mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

bool move_nothing(void*, std::size_t, void*) {
  return false;
}

std::size_t rounded(std::size_t bytes) {
  const std::size_t granule = PageArena::granule_bytes();
  return (bytes + granule - 1) / granule * granule;
}

TEST(PageArena, GivesTheSameBlockAgain) {
  PageArena arena;
  void* first = arena.allocate(3 * kMiB);
  std::memset(first, 1, 3 * kMiB);
  arena.release(first, 3 * kMiB);
  EXPECT_EQ(arena.allocate(3 * kMiB), first);
  EXPECT_EQ(arena.usage().fresh_bytes, static_cast<std::int64_t>(3 * kMiB));
  arena.release(first, 3 * kMiB);
}

TEST(PageArena, TakesTheSmallestRangeThatFits) {
  PageArena arena;
  void* large = arena.allocate(8 * kMiB);
  void* between = arena.allocate(kMiB);
  void* small = arena.allocate(2 * kMiB);
  void* after = arena.allocate(kMiB);
  arena.release(large, 8 * kMiB);
  arena.release(small, 2 * kMiB);
  void* block = arena.allocate(2 * kMiB);
  EXPECT_EQ(block, small);
  for (auto [each, bytes] : {std::pair(block, 2 * kMiB), {between, kMiB}, {after, kMiB}}) arena.release(each, bytes);
  EXPECT_EQ(arena.usage().kept_bytes, arena.usage().mapped_bytes);
}

TEST(PageArena, MovesPagesInsteadOfMappingMore) {
  PageArena arena;
  std::vector<void*> blocks;
  for (int i = 0; i < 8; ++i) {
    blocks.push_back(arena.allocate(kMiB));
    std::memset(blocks.back(), i, kMiB);
  }
  // Every other one is freed: no free range holds more than one block, wherever the system put them.
  for (int i = 0; i < 8; i += 2) arena.release(blocks[static_cast<std::size_t>(i)], kMiB);
  void* large = arena.allocate(4 * kMiB);
  std::memset(large, 9, 4 * kMiB);
  EXPECT_EQ(arena.usage().mapped_bytes, static_cast<std::int64_t>(8 * kMiB));
  EXPECT_EQ(arena.usage().fresh_bytes, static_cast<std::int64_t>(8 * kMiB));
  for (int i = 1; i < 8; i += 2) {
    const auto* bytes = static_cast<const char*>(blocks[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(std::all_of(bytes, bytes + kMiB, [i](char byte) { return byte == i; })) << "block " << i;
    arena.release(blocks[static_cast<std::size_t>(i)], kMiB);
  }
  arena.release(large, 4 * kMiB);
}

TEST(PageArena, MapsOnlyWhatIsMissing) {
  PageArena arena;
  void* first = arena.allocate(3 * kMiB);
  arena.release(first, 3 * kMiB);
  void* larger = arena.allocate(5 * kMiB);
  std::memset(larger, 1, 5 * kMiB);
  EXPECT_EQ(arena.usage().mapped_bytes, static_cast<std::int64_t>(5 * kMiB));
  EXPECT_EQ(arena.usage().moved_bytes, static_cast<std::int64_t>(3 * kMiB));
  EXPECT_EQ(arena.usage().kept_bytes, 0);
  arena.release(larger, 5 * kMiB);
}

TEST(PageArena, TrimGivesKeptPagesBack) {
  PageArena arena;
  void* first = arena.allocate(4 * kMiB);
  void* second = arena.allocate(kMiB);
  arena.release(first, 4 * kMiB);
  arena.trim();
  EXPECT_EQ(arena.usage().mapped_bytes, static_cast<std::int64_t>(kMiB));
  EXPECT_EQ(arena.usage().kept_bytes, 0);
  std::memset(second, 1, kMiB);
  arena.release(second, kMiB);
}

TEST(PageArena, RefusesWhatNoMachineHas) {
  PageArena arena;
  EXPECT_THROW(arena.allocate(std::size_t{1} << 62), std::bad_alloc);
  EXPECT_THROW(arena.allocate(~std::size_t{0}), std::bad_alloc);
}

struct Block {
  unsigned char* data;
  std::size_t bytes;
  unsigned char mark;
};

// Blocks of random sizes come and go; each must keep its own bytes. Returns the largest sum of blocks alive.
std::int64_t random_life(PageArena& arena, std::uint64_t seed, int operations) {
  std::mt19937_64 random(seed);
  std::vector<Block> blocks;
  std::int64_t alive = 0;
  std::int64_t peak = 0;
  const auto end = [&](std::size_t which) {
    const Block block = blocks[which];
    for (std::size_t at : {std::size_t{0}, block.bytes / 2, block.bytes - 1}) EXPECT_EQ(block.data[at], block.mark);
    arena.release(block.data, block.bytes);
    alive -= static_cast<std::int64_t>(rounded(block.bytes));
    blocks[which] = blocks.back();
    blocks.pop_back();
  };
  for (int i = 0; i < operations; ++i) {
    if (blocks.size() > 20 || (!blocks.empty() && random() % 2 == 0)) {
      end(random() % blocks.size());
      continue;
    }
    const std::size_t bytes = kMiB / 4 + random() % kMiB;
    const auto mark = static_cast<unsigned char>(random());
    blocks.push_back({static_cast<unsigned char*>(arena.allocate(bytes)), bytes, mark});
    for (std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1}) blocks.back().data[at] = mark;
    alive += static_cast<std::int64_t>(rounded(bytes));
    peak = std::max(peak, alive);
  }
  while (!blocks.empty()) end(0);
  return peak;
}

TEST(PageArena, NeverMapsMoreThanLivedAtOnce) {
  for (const PageArena::Mover mover : {PageArena::Mover{nullptr}, &move_one_granule, &move_nothing}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      PageArena own(mover);
      PageArena standard;
      PageArena& arena = mover == nullptr ? standard : own;
      const std::int64_t peak = random_life(arena, seed, 600);
      EXPECT_EQ(arena.usage().mapped_bytes, peak) << "seed " << seed;
      EXPECT_EQ(arena.usage().kept_bytes, peak) << "seed " << seed;
      if (mover == &move_nothing) {
        EXPECT_EQ(arena.usage().moved_bytes, 0);
        EXPECT_GT(arena.usage().fresh_bytes, peak) << "pages that cannot move are replaced";
      } else {
        EXPECT_EQ(arena.usage().fresh_bytes, peak) << "seed " << seed;
      }
    }
  }
}

TEST(PageArena, ServesThreadsAtOnce) {
  PageArena arena;
  std::vector<std::thread> threads;
  for (std::uint64_t i = 0; i < 4; ++i) threads.emplace_back([&arena, i] { random_life(arena, 100 + i, 400); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.usage().kept_bytes, arena.usage().mapped_bytes);
}

}  // namespace page_arena_test
}  // namespace orthant
