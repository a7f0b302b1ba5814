// SHA-256 and HMAC-SHA-256 (FIPS 180-4, RFC 2104): what proves that somebody holds a secret. A hash that only finds
// damage is in files/xxhash.h, and far quicker.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace orthant {

using Sha256Digest = std::array<std::byte, 32>;

// Takes bytes in chunks of any size; digest() is the hash of all bytes so far and may be asked for at any time.
class Sha256 {
 public:
  Sha256();

  void update(std::span<const std::byte> bytes);
  Sha256Digest digest() const;

 private:
  static constexpr std::size_t kBlock = 64;

  std::array<std::uint32_t, 8> state_;
  std::uint64_t total_bytes_ = 0;
  std::array<std::byte, kBlock> pending_ = {};  // the first total_bytes_ % kBlock bytes await a whole block
};

// The same with a key of any length.
class HmacSha256 {
 public:
  explicit HmacSha256(std::span<const std::byte> key);

  void update(std::span<const std::byte> bytes) { inner_.update(bytes); }
  Sha256Digest digest() const;

 private:
  Sha256 inner_;
  Sha256 outer_;
};

// In a time that does not depend on where they differ: who guesses learns nothing from it.
bool equal_digests(const Sha256Digest& a, const Sha256Digest& b);

// 64 lower-case hexadecimal digits.
std::string digest_text(const Sha256Digest& digest);

}  // namespace orthant
