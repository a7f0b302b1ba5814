// What `orthant train --dry-run --programs` prints: the program of every kind of unit.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "orthant/train/run_config.h"

namespace orthant::cli {

// A section per program, headed by the units that run it. Sizes are those of the configured microbatch, on the tp rank
// with the largest parts.
std::string programs_text(const RunConfig& config);
nlohmann::ordered_json programs_document(const RunConfig& config);

}  // namespace orthant::cli
