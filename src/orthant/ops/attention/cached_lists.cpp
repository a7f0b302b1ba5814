#include "orthant/ops/attention/cached_lists.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/ops/attention/cached_attention_device.h"

namespace orthant::nn {
namespace {

std::int64_t blocks_of(const CachedSequence& sequence) {
  return (sequence.past + sequence.tokens + kCacheBlock - 1) / kCacheBlock;
}

at::Tensor matrix(const std::vector<std::int64_t>& numbers, std::int64_t columns) {
  return at::tensor(numbers, at::kLong).view({-1, columns});
}

}  // namespace

CachedPlaces exact_places(const std::vector<CachedSequence>& sequences) {
  CachedPlaces places{.sequences = static_cast<std::int64_t>(sequences.size()), .blocks = 1};
  for (const auto& sequence : sequences) places.blocks = std::max(places.blocks, blocks_of(sequence));
  return places;
}

CachedLists cached_lists(const std::vector<CachedSequence>& sequences, std::int64_t shared,
                         const CachedPlaces& places) {
  std::vector<std::int64_t> all, of, positions, single, others;
  std::vector<std::int64_t> tables(static_cast<std::size_t>(places.sequences * places.blocks), 0);
  std::int64_t tokens = 0, most = 1;
  const auto add = [&](std::int64_t number, const CachedSequence& sequence) {
    all.insert(all.end(), {sequence.first, sequence.tokens, sequence.past});
    auto& tiles = sequence.tokens == 1 ? single : others;
    for (std::int64_t row = 0; row < sequence.tokens * shared; row += device::kTileRows) {
      tiles.insert(tiles.end(), {number, row});
    }
    for (std::int64_t i = 0; i < sequence.tokens; ++i) {
      of.push_back(number);
      positions.push_back(std::max<std::int64_t>(sequence.past + i, 0));
    }
    tokens += sequence.tokens;
  };
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    const auto number = static_cast<std::int64_t>(s);
    const auto held = std::min<std::int64_t>(blocks_of(sequences[s]), places.blocks);
    add(number, sequences[s]);
    std::copy_n(sequences[s].blocks.begin(), held, tables.begin() + number * places.blocks);
    if (sequences[s].tokens == 1) most = std::max(most, sequences[s].past + 1);
  }
  for (auto s = static_cast<std::int64_t>(sequences.size()); s < places.sequences; ++s) add(s, {tokens, 1, -1, {}});
  // Of a recording: as many as its tables have room for.
  const auto single_tiles = static_cast<std::int64_t>(single.size()) / 2;
  if (others.empty()) most = places.blocks * kCacheBlock;
  single.insert(single.end(), others.begin(), others.end());
  return {.sequences = matrix(all, 3),
          .tables = matrix(tables, places.blocks),
          .tiles = matrix(single, 2),
          .sequence_of = at::tensor(of, at::kLong),
          .positions = at::tensor(positions, at::kLong),
          .single = single_tiles,
          .chunks = (most + device::kChunkKeys - 1) / device::kChunkKeys,
          .shared = shared};
}

}  // namespace orthant::nn
