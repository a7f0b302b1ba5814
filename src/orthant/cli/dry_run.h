// What `orthant train --dry-run` prints: the mesh, the model, and what ranks would keep, send and do.
#pragma once

#include "orthant/train/run_config.h"

namespace orthant::cli {

// One screen about the mesh, the model, its stages and what the fullest rank keeps and sends; `verbose`: also ranks and
// groups, where every parameter lies, and the actions of a step. `ranks_per_host` of 0: all on one host.
void print_dry_run(const RunConfig& config, int ranks_per_host, bool verbose);

}  // namespace orthant::cli
