// Parity: two ways to train one model must compute the same numbers. Trains both sides from one seed on the same data
// and compares losses, gradient norms, gradients and weights by full parameter name.
//
// Note [Relative error]: the error of a tensor is max|a - b| / max(max|ref|, 0.01 x the largest max|ref| over all
// tensors), since some true gradients are zero (attention key biases). A run in float64 has no float32 inside, so that
// rounding cannot hide a missing sum.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/train/parity_suspects.h"
#include "orthant/train/run_config.h"

namespace orthant {

// What one side computed.
struct ParitySide {
  std::vector<std::string> names;  // of all parameters, in model order
  std::vector<double> losses;
  std::vector<double> grad_norms;
  std::map<std::string, at::Tensor> first_gradients;  // of the first step, before clipping; whole tensors on the host
  std::map<std::string, at::Tensor> gradients;        // of the last step
  std::map<std::string, at::Tensor> weights;          // after it
  bool replicas_equal = true;                         // ranks that hold the same elements hold the same bits
};

struct ParityOptions {
  std::int64_t steps = 3;
  std::int64_t resume_at =
      0;  // the side is saved after this step, thrown away and continued from its checkpoint; 0: not
};

// Trains `options.steps` steps. Collective over the ranks of the configuration's communicator; every rank gets all.
ParitySide run_parity_side(RunConfig config, const ParityOptions& options);

struct ParityResult {
  bool pass = false;
  bool bitwise = false;  // every number has the same bits
  double loss = 0;       // largest relative errors
  double grad_norm = 0;
  double gradients = 0;
  double weights = 0;
  std::string worst_parameter;
  bool replicas_equal = true;
  // In the first step, before anything has spread, or else in the last: the first parameter, in model order, whose
  // gradient is beyond the tolerance, and its gradient over the reference's, when that is one number.
  std::string first_difference;
  double likely_factor = 1;
  std::string likely_cause;  // what the factor hints at; empty without a difference
  double tolerance = 0;
};

// What a dtype's rounding allows over a few steps.
double parity_tolerance(DType dtype);
// Of the coarsest type that something is computed or kept in.
double parity_tolerance(const Precision& precision);

ParityResult compare_sides(const ParitySide& side, const ParitySide& reference, double tolerance,
                           const std::vector<Suspect>& suspects = {});

std::string parity_text(const ParityResult& result);
nlohmann::ordered_json parity_json(const ParityResult& result);

}  // namespace orthant
