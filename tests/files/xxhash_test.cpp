#include "orthant/files/xxhash.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace orthant {
namespace xxhash_test {

std::uint64_t hash_of(std::string_view text) {
  return xxh64(std::as_bytes(std::span(text)));
}

std::vector<std::byte> pattern(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 131 + 7);
  return bytes;
}

TEST(Xxh64, MatchesPublishedValues) {
  EXPECT_EQ(hash_of(""), 0xef46db3751d8e999);
  EXPECT_EQ(hash_of("a"), 0xd24ec4f1a98c6e5b);
  EXPECT_EQ(hash_of("abc"), 0x44bc2cf5ad770999);
}

// Values printed by libxxhash 0.8.1; the lengths take every path through tail and stripes.
TEST(Xxh64, MatchesLibxxhashAtEveryKindOfLength) {
  const std::vector<std::pair<std::size_t, std::uint64_t>> known = {
      {1, 0xa96c7f0ce858bbb7},   {4, 0xfa212ae44b3bb23d},  {7, 0x2744460dd675d2c0},   {8, 0x994b676b71ce94dd},
      {13, 0xdadc8a6255b4829b},  {31, 0x6711d55e306b5d8f}, {32, 0x07f7b8e3bc5d6e25},  {33, 0x09f85eeb4e1cbe9f},
      {63, 0xb7c9968c066cb6a5},  {64, 0x50d4159a0411632e}, {100, 0x9ddada11d3dc2d8f}, {222, 0x2d0544cca0f576c7},
      {1000, 0x0bf0bdbcc82eb373}};
  for (const auto& [count, hash] : known) EXPECT_EQ(xxh64(pattern(count)), hash) << count << " bytes";
}

TEST(Xxh64, MatchesLibxxhashWithASeed) {
  const std::vector<std::pair<std::size_t, std::uint64_t>> known = {{0, 0xac75fda2929b17ef},
                                                                    {1, 0x84e535b36672440d},
                                                                    {14, 0x3feedf322f169692},
                                                                    {222, 0xd0755eee702127bb},
                                                                    {1000, 0xb43e358553049780}};
  for (const auto& [count, hash] : known) EXPECT_EQ(xxh64(pattern(count), 2654435761), hash) << count << " bytes";
}

TEST(Xxh64, ChunksOfAnySizeGiveTheHashOfTheWhole) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const auto bytes = pattern(random() % 700);
    const std::size_t largest = 1 + random() % 90;
    Xxh64 hash;
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::min<std::size_t>(random() % (largest + 1), bytes.size() - at);
      hash.update(std::span(bytes).subspan(at, count));
      at += count;
      ASSERT_EQ(hash.digest(), xxh64(std::span(bytes).first(at))) << "after " << at << " bytes, round " << round;
    }
    ASSERT_EQ(hash.digest(), xxh64(bytes)) << bytes.size() << " bytes, round " << round;
  }
}

TEST(BlockHashes, AreThoseOfTheBlocksWhateverTheChunks) {
  EXPECT_EQ(BlockHashes().digests(), std::vector{xxh64({})});
  for (const std::int64_t size :
       {kHashedBlockBytes - 1, kHashedBlockBytes, kHashedBlockBytes + 5, 2 * kHashedBlockBytes}) {
    const auto bytes = pattern(static_cast<std::size_t>(size));
    std::vector<std::uint64_t> expected;
    for (std::int64_t at = 0; at < size; at += kHashedBlockBytes) {
      const auto count = std::min(kHashedBlockBytes, size - at);
      expected.push_back(
          xxh64(std::span(bytes).subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(count))));
    }
    EXPECT_EQ(static_cast<std::int64_t>(expected.size()), num_hashed_blocks(size));
    for (const std::size_t chunk : {bytes.size(), std::size_t{1} << 20, std::size_t{1234567}}) {
      BlockHashes hashes;
      for (std::size_t at = 0; at < bytes.size(); at += chunk) {
        hashes.update(std::span(bytes).subspan(at, std::min(chunk, bytes.size() - at)));
      }
      EXPECT_EQ(hashes.digests(), expected) << size << " bytes in chunks of " << chunk;
    }
  }
}

}  // namespace xxhash_test
}  // namespace orthant
