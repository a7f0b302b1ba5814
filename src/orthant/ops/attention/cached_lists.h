// What a step of a generation is to a device's kernels, from what it is to the host. Local.
#pragma once

#include "orthant/nn/key_cache.h"

namespace orthant::nn {

struct CachedPlaces {
  std::int64_t sequences = 0;  // places for them, at least as many as there are; those of nobody have one token each
  std::int64_t blocks = 0;     // columns of their tables, at least as many as the longest needs
};

// Tensors of the host. `shared`: query heads of a key/value head. Tokens of places of nobody come behind all others.
CachedLists cached_lists(const std::vector<CachedSequence>& sequences, std::int64_t shared, const CachedPlaces& places);
// Places for these alone.
CachedPlaces exact_places(const std::vector<CachedSequence>& sequences);

}  // namespace orthant::nn
