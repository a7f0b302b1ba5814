#include "orthant/files/slice_runs.h"

#include <cstddef>
#include <vector>

namespace orthant {

bool is_box_of(std::span<const std::int64_t> shape, std::span<const std::int64_t> offsets,
               std::span<const std::int64_t> lengths) {
  if (offsets.size() != shape.size() || lengths.size() != shape.size()) return false;
  for (std::size_t dim = 0; dim < shape.size(); ++dim) {
    if (offsets[dim] < 0 || lengths[dim] < 0 || offsets[dim] > shape[dim]) return false;
    if (lengths[dim] > shape[dim] - offsets[dim]) return false;
  }
  return true;
}

void for_each_run(std::span<const std::int64_t> shape, std::span<const std::int64_t> offsets,
                  std::span<const std::int64_t> lengths, std::int64_t element_bytes,
                  const std::function<void(std::int64_t begin, std::int64_t bytes)>& run) {
  for (const std::int64_t length : lengths) {
    if (length == 0) return;
  }
  // A run spans the innermost dimensions as far as the box has all of them, and its part of the next one.
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t begin = 0;
  std::int64_t bytes = element_bytes;
  std::int64_t run_bytes = element_bytes;
  std::size_t outer = 0;  // dimensions that are walked through
  bool whole = true;
  for (std::size_t dim = shape.size(); dim-- > 0; bytes *= shape[dim]) {
    strides[dim] = bytes;
    begin += offsets[dim] * bytes;
    if (whole) {
      run_bytes = bytes * lengths[dim];
      outer = dim;
      whole = lengths[dim] == shape[dim];
    }
  }
  std::vector<std::int64_t> index(outer, 0);
  while (true) {
    run(begin, run_bytes);
    std::size_t dim = outer;
    while (dim > 0) {
      --dim;
      begin += strides[dim];
      if (++index[dim] < lengths[dim]) break;
      begin -= lengths[dim] * strides[dim];
      index[dim] = 0;
      if (dim == 0) return;
    }
    if (outer == 0) return;
  }
}

}  // namespace orthant
