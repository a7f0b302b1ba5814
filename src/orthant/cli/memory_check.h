// Whether the ranks of a run fit into this host's memory, asked before any of them starts.
#pragma once

#include <cstdint>
#include <optional>

#include "orthant/cli/config_options.h"
#include "orthant/launch/job.h"

namespace orthant::cli {

// What the planner says that these ranks of the run take together, and the processes themselves.
std::int64_t host_bytes(const RunConfig& config, int first_rank, int num_ranks);

// ConfigError when the ranks that run on this host's cores need more than is free here; its remedy is a way to train
// the same that fits, and all ways that were looked at are said before it with their bytes. Of the ranks that a
// launcher has started the first one of the host asks; ranks on devices are not looked at. Local.
void check_memory(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
                  const std::optional<launch::Job>& job, const launch::Environment& environment);

}  // namespace orthant::cli
