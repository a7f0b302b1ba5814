// Where the bytes of a box of a row-major tensor lie: the contiguous runs that a reader of files fetches one by one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

namespace orthant {

// Whether the box [offsets, offsets + lengths) lies within the shape.
bool is_box_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> offsets,
               std::span<const std::int64_t> lengths);

// Calls `run(begin, bytes)` for each contiguous range of the box's bytes, in order; none for an empty box. No two of
// them touch. The box lies within the shape, and the tensor's bytes can be counted.
void for_each_run(std::span<const std::int64_t> shape, std::span<const std::int64_t> offsets,
                  std::span<const std::int64_t> lengths, std::int64_t element_bytes,
                  const std::function<void(std::int64_t begin, std::int64_t bytes)>& run);

}  // namespace orthant
