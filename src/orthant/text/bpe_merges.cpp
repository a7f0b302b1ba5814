#include "orthant/text/bpe_merges.h"

#include <algorithm>
#include <array>
#include <bit>
#include <queue>

#include "orthant/text/byte_hash.h"

namespace orthant {
namespace {

constexpr std::size_t kShortWord = 48;  // symbols up to which the array is faster

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

// A pair in the heap. It is stale when one of its two symbols has merged since.
struct Candidate {
  std::uint32_t rank;
  std::uint32_t left;  // place of the left symbol
  std::int32_t left_id;
  std::int32_t right_id;
  std::int32_t merged_id;

  bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : left > other.left; }
};

struct Link {
  std::int32_t id;
  std::int32_t previous;
  std::int32_t next;  // -1: the last
};

}  // namespace

BpeMerges::BpeMerges(std::size_t num_merges) : slots_(std::bit_ceil(num_merges * 2 + 2)) {}

std::size_t BpeMerges::slot_of(std::uint64_t key) const {
  const auto mask = slots_.size() - 1;
  auto slot = mix_bits(key ^ 0x9e3779b97f4a7c15, 0xd6e8feb86659fd93) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void BpeMerges::set(std::int32_t left, std::int32_t right, Merge merge) {
  const auto key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

BpeMerges::Merge BpeMerges::find(std::int32_t left, std::int32_t right) const {
  return slots_[slot_of(key_of(left, right))].merge;
}

void BpeMerges::apply(std::vector<std::int32_t>& symbols, std::size_t from) const {
  const auto count = symbols.size() - from;
  if (count < 2) return;
  if (count <= kShortWord) {
    apply_short(symbols, from);
  } else {
    apply_long(symbols, from);
  }
}

void BpeMerges::apply_short(std::vector<std::int32_t>& symbols, std::size_t from) const {
  std::array<Merge, kShortWord> pairs;  // of symbol i with i + 1
  auto* ids = symbols.data() + from;
  auto count = symbols.size() - from;
  for (std::size_t i = 0; i + 1 < count; ++i) pairs[i] = find(ids[i], ids[i + 1]);
  while (count > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < count; ++i) {
      if (pairs[i].rank < pairs[best].rank) best = i;
    }
    if (pairs[best].rank == kNoRank) break;
    ids[best] = pairs[best].id;
    std::copy(ids + best + 2, ids + count, ids + best + 1);
    std::copy(pairs.begin() + best + 1, pairs.begin() + count - 1, pairs.begin() + best);
    --count;
    if (best > 0) pairs[best - 1] = find(ids[best - 1], ids[best]);
    if (best + 1 < count) pairs[best] = find(ids[best], ids[best + 1]);
  }
  symbols.resize(from + count);
}

void BpeMerges::apply_long(std::vector<std::int32_t>& symbols, std::size_t from) const {
  const auto count = static_cast<std::int32_t>(symbols.size() - from);
  std::vector<Link> links(static_cast<std::size_t>(count));
  const auto link = [&](std::int32_t at) -> Link& { return links[static_cast<std::size_t>(at)]; };
  for (std::int32_t i = 0; i < count; ++i) {
    link(i) = {symbols[from + static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::vector<Candidate> storage;
  storage.reserve(links.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> heap({}, std::move(storage));
  const auto offer = [&](std::int32_t left) {
    if (left < 0 || link(left).next < 0) return;
    const auto left_id = link(left).id;
    const auto right_id = link(link(left).next).id;
    const auto merge = find(left_id, right_id);
    if (merge.rank == kNoRank) return;
    heap.push({merge.rank, static_cast<std::uint32_t>(left), left_id, right_id, merge.id});
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) offer(i);
  while (!heap.empty()) {
    const auto top = heap.top();
    heap.pop();
    const auto at = static_cast<std::int32_t>(top.left);
    const auto right = link(at).next;
    if (link(at).id != top.left_id || right < 0 || link(right).id != top.right_id) continue;
    link(at).id = top.merged_id;
    link(at).next = link(right).next;
    if (link(at).next >= 0) link(link(at).next).previous = at;
    link(right).id = -1;  // gone
    offer(link(at).previous);
    offer(at);
  }
  symbols.resize(from);
  for (std::int32_t at = 0; at >= 0; at = link(at).next) symbols.push_back(link(at).id);
}

}  // namespace orthant
