// XXH64, the 64-bit hash that names the contents of checkpoint files. It finds damage, not forgery. Equal to libxxhash
// bit for bit, so that files can be checked with xxhsum.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

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

}  // namespace orthant
