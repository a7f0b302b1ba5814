// A hash of text that every process of a job, and every later release, computes alike: FNV-1a, 64 bits.
#pragma once

#include <cstdint>
#include <string_view>

namespace orthant {

inline constexpr std::uint64_t kStableHashBasis = 0xcbf29ce484222325;

constexpr std::uint64_t stable_hash_step(std::uint64_t hash, unsigned char byte) {
  return (hash ^ byte) * 0x100000001b3;
}

constexpr std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = kStableHashBasis;
  for (const char letter : text) hash = stable_hash_step(hash, static_cast<unsigned char>(letter));
  return hash;
}

}  // namespace orthant
