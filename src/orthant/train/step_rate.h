// How fast a step was in the model's own work: FLOPs of its products and attention, beside the peak of the cards.
// Local.
#pragma once

#include <optional>
#include <string>

#include "orthant/train/run_config.h"

namespace orthant {

struct StepRate {
  double tflops = 0;       // of the model, a second, all ranks together; recompute does not count
  double peak_tflops = 0;  // of one card, in 16 bits, as its data sheet has it
  std::string hardware;    // whose peak that is
  int ranks = 1;

  double utilization() const { return tflops / (peak_tflops * ranks); }
};

// Forward and backward of one row of a run's model; 0 where the planner does not know the model.
double model_flops_per_sample(const RunConfig& config);

// Of a step of a run that took so long. Nothing where no hardware of the planner bears the card's name.
std::optional<StepRate> step_rate(const RunConfig& config, double seconds, const std::string& card);

// "model 410 TFLOP/s, MFU 41% of h200-141gb (989 TFLOP/s in 16 bits)"
std::string rate_text(const StepRate& rate);

}  // namespace orthant
