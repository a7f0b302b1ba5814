// A fast hash of short byte strings for tables in memory. It differs between machines and is never stored.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace orthant {

// Both halves of a 128-bit product, folded: every bit of the input reaches every bit of the result.
inline std::uint64_t mix_bits(std::uint64_t left, std::uint64_t right) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(left) * right;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view bytes) {
  constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t kSecond = 0xd6e8feb86659fd93;
  std::uint64_t hash = bytes.size() * kFirst;
  const char* at = bytes.data();
  auto left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    hash = mix_bits(hash ^ word, kSecond);
  }
  if (left > 0) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, left);
    hash = mix_bits(hash ^ word, kSecond);
  }
  return mix_bits(hash ^ kFirst, kSecond);
}

}  // namespace orthant
