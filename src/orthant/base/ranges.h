// Half-open ranges of elements, rows or ranks, and the balanced rule: how n things are cut over d ranks when d need not
// divide n. Every cut of a tensor dimension uses this one rule; rows are cut as layout/rows.h says.
#pragma once

#include <algorithm>
#include <cstdint>

namespace orthant {

struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  friend bool operator==(const Range&, const Range&) = default;
};

// What both hold; an empty range when that is nothing.
inline Range common(Range a, Range b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// [floor(index n / degree), floor((index + 1) n / degree)), without overflow.
inline Range balanced_range(std::int64_t n, int degree, int index) {
  const auto cut = [&](std::int64_t i) { return i * (n / degree) + i * (n % degree) / degree; };
  return {cut(index), cut(index + std::int64_t{1})};
}

}  // namespace orthant
