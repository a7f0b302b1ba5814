// What a host's product of few rows with a weight packs its rows into (ops/linear/few_rows.h): the kernel lays them out
// by this, and the planner counts them.
#pragma once

#include <cstdint>

namespace orthant {

inline constexpr std::int64_t kFewRows = 32;  // at most; more are the library's

// Fewer are read where they lie: packed ones would leave half of a wide vector's lanes idle.
constexpr std::int64_t rows_packed(std::int64_t lanes) {
  return lanes >= 16 ? 9 : 5;
}

// Rows as whole vectors of so many elements.
constexpr std::int64_t packed_row(std::int64_t rows, std::int64_t lanes) {
  return (rows + lanes - 1) / lanes * lanes;
}

// Elements in all, of rows with so many channels; 0 where nothing is packed.
constexpr std::int64_t packed_elements(std::int64_t rows, std::int64_t depth, std::int64_t lanes) {
  return rows < rows_packed(lanes) || rows > kFewRows ? 0 : packed_row(rows, lanes) * depth;
}

}  // namespace orthant
