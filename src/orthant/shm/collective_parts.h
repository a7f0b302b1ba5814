// What the collectives share about tensors that are cut into parts and chunks. Internal to this layer.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "orthant/shm/collective.h"
#include "orthant/shm/copy.h"

namespace orthant::shm {

// In place of an offset in an arena: the tensor is not in one.
inline constexpr uint64_t kNotPlaced = ~uint64_t{0};

// Where each member's part begins, in bytes, and where the last one ends.
inline std::vector<size_t> offsets_of(const std::vector<int64_t>& counts, size_t element) {
  std::vector<size_t> offsets{0};
  for (const auto count : counts) offsets.push_back(offsets.back() + static_cast<size_t>(count) * element);
  return offsets;
}

// Bytes of the largest of them.
inline size_t largest_part(const std::vector<size_t>& offsets) {
  size_t largest = 0;
  for (size_t i = 1; i < offsets.size(); ++i) largest = std::max(largest, offsets[i] - offsets[i - 1]);
  return largest;
}

// Steps that carry `bytes` in chunks; at least one.
inline uint64_t steps_for(size_t bytes, size_t chunk) {
  return std::max<uint64_t>(1, (bytes + chunk - 1) / chunk);
}

std::shared_ptr<Collective> make_all_to_all(CollectiveRequest request, Lanes& lanes);

}  // namespace orthant::shm
