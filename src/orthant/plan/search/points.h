// A sample of what the search has priced, small enough for a picture: the Pareto front of memory and speed in full, for
// each pair of tp and pp the fastest that fits (where none does, the leanest), of the rest every n-th, n growing as
// they come. The same request gives the same sample.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "orthant/plan/search/search.h"

namespace orthant {

class PointSample {
 public:
  // What wants() asks of a point: its degrees and its price.
  struct Price {
    int tp = 1;
    int pp = 1;
    float memory_bytes = 0;
    float tokens_per_second = 0;
    bool fits = false;
  };

  // Whether add() would keep it; cheap, so that a point need not be made for all.
  bool wants(std::int64_t order, const Price& price) const;
  void add(std::int64_t order, const PricedPoint& point);

  std::vector<PricedPoint> points() const;  // by order

 private:
  bool is_beyond_front(const Price& price) const;
  bool is_best_of_pair(const Price& price) const;

  std::int64_t stride_ = 1;
  std::vector<std::pair<std::int64_t, PricedPoint>> sample_;
  std::map<float, std::pair<std::int64_t, PricedPoint>> front_;                // by memory; speed ascends with it
  std::map<std::pair<int, int>, std::pair<std::int64_t, PricedPoint>> pairs_;  // by tp and pp
};

}  // namespace orthant
