// The measured plans of a run, in its folder as product_plans.json: read when the run goes on, written when they were
// measured. See Note [Measured plans].
#pragma once

#include <functional>
#include <string>

#include "orthant/train/output_folder.h"
#include "orthant/train/trainer.h"

namespace orthant {

// Before the first step, after the trainer has loaded what it goes on from; `folder` is rank 0's, else null. Does
// nothing unless plans are measured. Plans that are missing, or are of another card or library, are measured anew,
// which is noted. Collective over the world.
void use_kept_plans(Trainer& trainer, const OutputFolder* folder, const std::function<void(const std::string&)>& note);

// ConfigError for a run that goes on after a step, must repeat to the bit, and does not find the plans it began with;
// with another mesh, cut of the batch or precision its bits do not repeat anyway.
// `measured` says whether they can be used here; null: whether there are some is all that is looked at. Local.
void check_kept_plans(const OutputFolder& folder, const TrainerOptions& options, MeasuredPlans* measured,
                      std::int64_t step);

}  // namespace orthant
