// What a gradient that is wrong by a factor hints at: the axes, microbatches and rows there are as many of.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/train/run_config.h"

namespace orthant {

struct Suspect {
  std::string name;  // "dp", "dp x tp", "the microbatches"
  std::int64_t count = 1;
  friend bool operator==(const Suspect&, const Suspect&) = default;
};

// Of two ways to train: axes and products of axes of either mesh, microbatches, rows and positions of a step.
std::vector<Suspect> suspects(const RunConfig& tested, const RunConfig& reference);

// "x2, as for dp or tp: a sum is done twice, or a mean is not taken". `factor` is the gradient over the right one,
// NaN when that is not one number; then `mean_factor`, of all wrong gradients together, is near to one when each rank
// has summed its own rows only.
std::string likely_cause(double factor, double mean_factor, const std::vector<Suspect>& suspects);

}  // namespace orthant
