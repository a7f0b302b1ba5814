// Byte pair encoding of one word: symbols start as bytes; of all neighbours that may merge the pair of lowest rank
// does, leftmost first, until none is left. Short words in a plain array, long ones in a list with a heap: n log n.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace orthant {

// Immutable once filled, safe from several threads.
class BpeMerges {
 public:
  static constexpr std::uint32_t kNoRank = 0xffffffff;
  struct Merge {
    std::uint32_t rank = kNoRank;  // lower merges first; kNoRank: never
    std::int32_t id = -1;          // what the pair becomes
  };

  explicit BpeMerges(std::size_t num_merges);

  // A pair given again takes the later rank. Ids are not negative.
  void set(std::int32_t left, std::int32_t right, Merge merge);
  Merge find(std::int32_t left, std::int32_t right) const;

  // Merges symbols[from..] in place until no pair is left.
  void apply(std::vector<std::int32_t>& symbols, std::size_t from) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge;
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};

  std::size_t slot_of(std::uint64_t key) const;
  void apply_short(std::vector<std::int32_t>& symbols, std::size_t from) const;
  void apply_long(std::vector<std::int32_t>& symbols, std::size_t from) const;

  std::vector<Slot> slots_;  // open addressing, at most half full
};

}  // namespace orthant
