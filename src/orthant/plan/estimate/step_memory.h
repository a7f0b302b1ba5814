// What a rank of our runtime has besides its state while a step runs: the list is walked action by action, with what is
// kept for backward, what lies between units, what travels between stages and what the running unit takes. Pure.
#pragma once

#include "orthant/graph/spec.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/plan/estimate/rank_step.h"
#include "orthant/plan/estimate/unit_work.h"

namespace orthant {

// Bytes at one moment.
struct StepMoment {
  double activations = 0;  // kept for backward, or for the gradients of weights
  double logits = 0;       // likewise
  double temporary = 0;    // everything else
  double total() const { return activations + logits + temporary; }
};

// The one with most: of the list, of the update behind it and of the first values' drawing.
StepMoment worst_moment(const GraphSpec& resolved, const ModelWork& work, const RankStep& step,
                        const PlanSettings& settings);

}  // namespace orthant
