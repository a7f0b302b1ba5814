// What ranks say of the bits that they hold, compared: who is the odd one out. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

// What a rank holds under a key; ranks that hold the same thing have the same key.
struct HeldBits {
  std::uint64_t key = 0;
  std::uint64_t hash = 0;
};

// Ranks that do not hold the same bits under one key.
struct ReplicaDifference {
  std::uint64_t key = 0;
  std::vector<int> odd;    // ascending: those that differ from most others; all, where no bits are held by most
  std::vector<int> equal;  // the most that hold the same bits; none, where no bits are held by most

  bool decided() const { return !equal.empty(); }
};

// One for each key under which hashes differ, in the order in which the lowest of its ranks lists it. `held`: by rank.
std::vector<ReplicaDifference> replica_differences(const std::vector<std::vector<HeldBits>>& held);

// Of every key of `own`: a hash of the set of ranks that hold it; 0 where no other rank does. `held`: by rank.
std::vector<std::uint64_t> sets_of_holders(const std::vector<std::uint64_t>& own,
                                           const std::vector<std::vector<std::uint64_t>>& held);

// "rank 1", "ranks 0, 2 and 3"; with their hosts: "rank 1 (host a)". `hosts`: by rank, may be empty.
std::string ranks_text(const std::vector<int>& ranks, const std::vector<std::string>& hosts = {});

}  // namespace orthant
