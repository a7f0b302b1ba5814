// What `orthant train --dry-run` prints: the mesh, the model, and what ranks would keep, send and do.
#pragma once

#include "orthant/train/run_config.h"

namespace orthant::cli {

// On stdout. ConfigError for what cannot be trained.
void print_dry_run(const RunConfig& config);

}  // namespace orthant::cli
