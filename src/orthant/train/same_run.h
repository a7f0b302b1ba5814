// Whether a checkpoint may be continued by a configuration: the same model, and the same data in the same order.
#pragma once

#include <string>

#include "orthant/checkpoint/checkpoint.h"

namespace orthant {

// DataError that names the first difference and what to set: of data and its preprocessing, then of generated data and
// the model's settings, which the config.json of the run that wrote the checkpoint tells. What is not there is not
// compared. Local.
void compare_with_run(const std::string& checkpoint, const std::string& resolved_config, const SavedFiles& files);

}  // namespace orthant
