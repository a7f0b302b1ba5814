#include "orthant/train/replica_difference.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "orthant/base/stable_hash.h"

namespace orthant {
namespace {

struct Holder {
  int rank = 0;
  std::uint64_t hash = 0;
};

// The ranks with the hash that more than half of them have; none where no hash is so common.
std::vector<int> majority(const std::vector<Holder>& holders) {
  for (const auto& candidate : holders) {
    std::vector<int> same;
    for (const auto& holder : holders) {
      if (holder.hash == candidate.hash) same.push_back(holder.rank);
    }
    if (2 * same.size() > holders.size()) return same;
  }
  return {};
}

std::uint64_t hash_of_ranks(const std::vector<int>& ranks) {
  std::uint64_t hash = kStableHashBasis;
  for (const int rank : ranks) {
    for (int shift = 0; shift < 32; shift += 8)
      hash = stable_hash_step(hash, static_cast<unsigned char>(rank >> shift));
  }
  return hash;
}

}  // namespace

std::vector<ReplicaDifference> replica_differences(const std::vector<std::vector<HeldBits>>& held) {
  std::vector<std::uint64_t> order;
  std::unordered_map<std::uint64_t, std::vector<Holder>> holders;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    for (const auto& [key, hash] : held[rank]) {
      auto& all = holders[key];
      if (all.empty()) order.push_back(key);
      all.push_back({static_cast<int>(rank), hash});
    }
  }
  std::vector<ReplicaDifference> differences;
  for (const auto key : order) {
    const auto& all = holders.at(key);
    if (std::ranges::all_of(all, [&](const Holder& one) { return one.hash == all.front().hash; })) continue;
    auto& difference = differences.emplace_back(ReplicaDifference{.key = key, .odd = {}, .equal = majority(all)});
    for (const auto& one : all) {
      if (std::ranges::find(difference.equal, one.rank) == difference.equal.end()) difference.odd.push_back(one.rank);
    }
  }
  return differences;
}

std::vector<std::uint64_t> sets_of_holders(const std::vector<std::uint64_t>& own,
                                           const std::vector<std::vector<std::uint64_t>>& held) {
  std::unordered_map<std::uint64_t, std::vector<int>> holders;
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    for (const auto key : held[rank]) holders[key].push_back(static_cast<int>(rank));
  }
  std::vector<std::uint64_t> sets;
  for (const auto key : own) {
    const auto& ranks = holders.at(key);
    sets.push_back(ranks.size() > 1 ? hash_of_ranks(ranks) : 0);
  }
  return sets;
}

std::string ranks_text(const std::vector<int>& ranks, const std::vector<std::string>& hosts) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += fmt::format("{}", ranks[i]);
    if (!hosts.empty()) text += fmt::format(" (host {})", hosts.at(static_cast<std::size_t>(ranks[i])));
  }
  return text;
}

}  // namespace orthant
