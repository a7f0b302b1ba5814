// XXH64, the 64-bit hash that names the contents of checkpoint files. It finds damage, not forgery. Equal to libxxhash
// bit for bit, so that files can be checked with xxhsum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace orthant {

// Takes bytes in chunks of any size; digest() is the hash of all bytes so far and may be asked for at any time.
class Xxh64 {
 public:
  explicit Xxh64(std::uint64_t seed = 0);

  void update(std::span<const std::byte> bytes);
  std::uint64_t digest() const;

 private:
  static constexpr std::size_t kStripe = 32;

  std::uint64_t seed_;
  std::uint64_t total_bytes_ = 0;
  std::array<std::uint64_t, 4> lanes_;
  std::array<std::byte, kStripe> pending_ = {};  // the first total_bytes_ % kStripe bytes await a whole stripe
};

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

// A long file has a hash for each block, so that many processes can check it together; a short or empty one has one.
inline constexpr std::int64_t kHashedBlockBytes = std::int64_t{8} << 20;
constexpr std::int64_t num_hashed_blocks(std::int64_t bytes) {
  return bytes <= kHashedBlockBytes ? 1 : (bytes + kHashedBlockBytes - 1) / kHashedBlockBytes;
}

// The hashes of a file that is written in chunks of any size.
class BlockHashes {
 public:
  void update(std::span<const std::byte> bytes);
  std::vector<std::uint64_t> digests() const;

 private:
  std::vector<std::uint64_t> whole_blocks_;
  Xxh64 last_;
  std::int64_t last_bytes_ = 0;
};

// 16 lower-case hexadecimal digits.
std::string hash_text(std::uint64_t hash);
std::vector<std::string> hash_texts(const std::vector<std::uint64_t>& hashes);

}  // namespace orthant
