// Whether the ranks of a run fit into the memory of their hosts and cards, asked before any of them allocates.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "orthant/cli/config_options.h"
#include "orthant/cli/rank_command.h"
#include "orthant/launch/job.h"
#include "orthant/train/memory_fit.h"

namespace orthant::cli {

// Of ranks that this process would start: all are on this host, `ranks_per_host` of them on each of several alike when
// it is not 0. Local, as is the next.
std::vector<RankPlace> places_of_local_ranks(const RunConfig& config, int ranks_per_host,
                                             const launch::Environment& environment);

// Of this process, which a launcher has started as the rank of a job.
RankPlace place_of_this_rank(const RunConfig& config, const launch::Job& job, const launch::Environment& environment);

// What `train` would be refused for: ConfigError when ranks at these places need more than is free there; its remedy is
// a way to train the same that fits, and all ways that were looked at are said before it with their bytes. Where
// `own_rank` is given, only the first of the ranks that lack memory says so; all throw alike. Local.
void check_memory(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
                  const std::vector<RankPlace>& places, const launch::Environment& environment,
                  std::optional<int> own_rank = std::nullopt);

// The same for --dry-run, as its last line: that train would start, or what it would be refused for. Says the ways.
std::string memory_verdict(const LoadedConfig& loaded, const ConfigOptions& options, const RankOptions& ranks,
                           const std::vector<RankPlace>& places, const launch::Environment& environment);

}  // namespace orthant::cli
