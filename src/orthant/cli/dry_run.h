// What `orthant train --dry-run` prints: the mesh, the model, and what ranks would keep, send and do.
#pragma once

#include "orthant/train/run_config.h"

namespace orthant::cli {

// On stdout. ConfigError for what cannot be trained. `ranks_per_host` is 0 when all ranks are on one host.
void print_dry_run(const RunConfig& config, int ranks_per_host);

}  // namespace orthant::cli
