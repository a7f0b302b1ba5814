// Philox 4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011):
// four random words are a pure function of a 128-bit counter and a 64-bit key. Nothing is carried from draw to draw, so
// every rank can compute its own part of a tensor. Everything here is Local and inline.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "orthant/base/stable_hash.h"

namespace orthant {

using PhiloxCounter = std::array<std::uint32_t, 4>;
using PhiloxKey = std::array<std::uint32_t, 2>;

constexpr PhiloxCounter philox(PhiloxCounter counter, PhiloxKey key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kKeyStep0 = 0x9E3779B9;
  constexpr std::uint32_t kKeyStep1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(product0)};
    key[0] += kKeyStep0;
    key[1] += kKeyStep1;
  }
  return counter;
}

constexpr PhiloxKey philox_key(std::uint64_t seed) {
  return {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
}

// The counter of one block of a stream: words 0 and 1 count blocks, words 2 and 3 name the stream.
constexpr PhiloxCounter philox_counter(std::uint64_t block, std::uint64_t stream) {
  return {static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32),
          static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
}

// The 64-bit name of a stream: FNV-1a 64 over the bytes of `name`, then, for each index (a step, a microbatch, a
// layer), over the byte 0xff and the index's eight bytes, lowest first. It never changes: seeds keep their meaning.
constexpr std::uint64_t stream_hash(std::string_view name, std::initializer_list<std::uint64_t> indices = {}) {
  std::uint64_t hash = stable_hash(name);
  for (const std::uint64_t index : indices) {
    hash = stable_hash_step(hash, 0xff);
    for (int shift = 0; shift < 64; shift += 8) hash = stable_hash_step(hash, (index >> shift) & 0xff);
  }
  return hash;
}

}  // namespace orthant
