// A trainer in the planner's words: what the closed forms of memory and traffic are computed from. Local.
#pragma once

#include <vector>

#include "orthant/plan/estimate/rank_step.h"
#include "orthant/train/trainer_setup.h"

namespace orthant {

// Without the sizes of a batch, which are the caller's.
PlanSettings plan_settings(const Mesh& mesh, const TrainerOptions& options);

// Of the rank of the options' communicator, or the first. `pipeline` is that of trainer_pipeline(), here and below.
TensorSettings tensor_settings(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                               const TrainerOptions& options);

// Of every pp coordinate.
std::vector<RankStep> rank_steps(const Pipeline& pipeline, const GraphSpec& graph, const Mesh& mesh,
                                 const TrainerOptions& options);

}  // namespace orthant
