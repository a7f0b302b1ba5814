// The section `precision` of a run's configuration: dtypes and the scale of the loss.
#pragma once

#include "orthant/base/json_reader.h"
#include "orthant/train/trainer.h"

namespace orthant {

// ConfigError for dtypes that do not fit together, or do not fit the policy that is read already.
void read_precision(JsonReader section, TrainerOptions& trainer);

}  // namespace orthant
