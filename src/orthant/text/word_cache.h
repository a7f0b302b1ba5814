// Ids of words seen before. Direct-mapped and of fixed size: a word takes the place of another with the same slot.
// Short words only, whose bytes and ids fit into one cache line. Not for use by two threads at once.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "orthant/text/byte_hash.h"

namespace orthant {

class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 24;
  static constexpr std::size_t kMaxIds = 9;

  // A word's bytes, zeros behind them.
  struct Key {
    std::array<std::uint64_t, 3> words = {};
    std::uint32_t length = 0;
  };

  WordCache() : slots_(kNumSlots) {}

  // `word` has 1 to kMaxBytes bytes.
  static Key key(std::string_view word) {
    const auto* at = word.data();
    const auto size = word.size();
    if (size <= 8) return {{load(at, size), 0, 0}, static_cast<std::uint32_t>(size)};
    if (size <= 16) return {{load(at, 8), load(at + 8, size - 8), 0}, static_cast<std::uint32_t>(size)};
    return {{load(at, 8), load(at + 8, 8), load(at + 16, size - 16)}, static_cast<std::uint32_t>(size)};
  }

  // Adds the word's ids to `ids`; false when it is not known.
  bool find(const Key& key, std::vector<std::int32_t>& ids) const {
    const auto& slot = slots_[slot_of(key)];
    if (slot.words != key.words || slot.length != key.length) return false;
    if (slot.num_ids == 1) {
      ids.push_back(slot.ids[0]);
    } else {
      ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.num_ids);
    }
    return true;
  }

  void put(const Key& key, std::span<const std::int32_t> ids) {
    if (ids.size() > kMaxIds) return;
    auto& slot = slots_[slot_of(key)];
    slot.words = key.words;
    slot.length = static_cast<std::uint8_t>(key.length);
    slot.num_ids = static_cast<std::uint8_t>(ids.size());
    std::copy(ids.begin(), ids.end(), slot.ids.begin());
  }

 private:
  struct alignas(64) Slot {
    std::array<std::uint64_t, 3> words = {};
    std::array<std::int32_t, kMaxIds> ids = {};
    std::uint8_t num_ids = 0;
    std::uint8_t length = 0;  // 0: free
  };
  static_assert(sizeof(Slot) == 64);
  static constexpr std::size_t kNumSlots = std::size_t{1} << 15;

  template <typename Word>
  static std::uint64_t read(const char* at) {
    Word word;
    std::memcpy(&word, at, sizeof word);
    return word;
  }

  // 1 to 8 bytes as a number; parts that are read twice fall onto themselves.
  static std::uint64_t load(const char* at, std::size_t size) {
    if (size == 8) return read<std::uint64_t>(at);
    if (size >= 4) return read<std::uint32_t>(at) | read<std::uint32_t>(at + size - 4) << (8 * (size - 4));
    if (size >= 2) return read<std::uint16_t>(at) | read<std::uint16_t>(at + size - 2) << (8 * (size - 2));
    return static_cast<unsigned char>(*at);
  }

  static std::size_t slot_of(const Key& key) {
    auto hash = mix_bits(key.words[0] ^ 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93 + key.length);
    if (key.length > 8) hash ^= mix_bits(key.words[1] ^ hash, key.words[2] ^ 0xa0761d6478bd642f);
    return hash >> 20 & (kNumSlots - 1);
  }

  std::vector<Slot> slots_;
};

}  // namespace orthant
