// What a run that has ended tells about going on with it: its best checkpoint, the export, the resume.
#pragma once

#include <string>
#include <vector>

#include "orthant/train/result_table.h"
#include "orthant/train/run_config.h"

namespace orthant::cli {

// The best checkpoint, and the command that turns it into a Hugging Face folder where the run began from one. The run
// is done: a checkpoint that cannot be read any more is not named.
std::vector<ResultRow> rows_of_best(const RunConfig& config, const RunResult& result);

// The command that goes on with a run that was stopped.
std::string resume_command(const RunResult& result);

}  // namespace orthant::cli
