// The stages of a table taken as a chain: a microbatch passes them upwards in F and downwards in B or BW. Whatever a
// graph's edges are, an order that respects the chain respects them, since they only lead to later stages.
#pragma once

#include <set>
#include <utility>

#include "orthant/schedule/stage_table.h"

namespace orthant {

class StageChain {
 public:
  explicit StageChain(int num_stages) : num_stages_(num_stages) {}

  bool ready(const StageAction& action) const;
  void finish(const StageAction& action);

  // What `action` waits for while it is not ready.
  StageAction awaited(const StageAction& action) const;

 private:
  bool forward_done(int stage, int microbatch) const { return forward_.contains({stage, microbatch}); }
  bool backward_done(int stage, int microbatch) const { return backward_.contains({stage, microbatch}); }

  int num_stages_;
  std::set<std::pair<int, int>> forward_;   // (stage, microbatch)
  std::set<std::pair<int, int>> backward_;  // B or BW
};

}  // namespace orthant
