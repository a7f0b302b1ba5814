// What a run finds wrong at its start, found without starting it: for dry runs.
#pragma once

#include <string>

#include "orthant/train/run.h"

namespace orthant {

// Throws what the run would throw before its first step: data and tokenizers that cannot be read or do not fit, weights
// that do not fit the model, an output folder that is taken, a checkpoint that cannot be resumed. Reads what the run
// would read; writes and makes nothing. Plans are made where the data is not: files of data that are absent are no
// error here, and what is to be told of them is returned; nothing of the data was looked at then. Local.
std::string check_start(RunConfig config, const std::string& resolved_config, const RunOptions& options);

}  // namespace orthant
