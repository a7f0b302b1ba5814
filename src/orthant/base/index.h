// Counts and indices are ints in what people write and read; containers want std::size_t.
#pragma once

#include <cstddef>

namespace orthant {

// A valid index of a container, so at least 0.
constexpr std::size_t to_index(int index) {
  return static_cast<std::size_t>(index);
}

}  // namespace orthant
