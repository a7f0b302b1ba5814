// Ways to train the same with less memory, as a user would write them, each with what it needs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/cli/config_options.h"
#include "orthant/cli/rank_command.h"
#include "orthant/train/memory_fit.h"

namespace orthant::cli {

struct MemoryWay {
  std::string words;
  std::int64_t bytes = 0;  // in the memory that lacks most now
  bool fits = false;       // there and everywhere else
};

// Changes of what the user gave, in the order to try them: those that change no number first, then other meshes of as
// many ranks, then other precision. Those that cannot be trained and those that save nothing are left out, and those
// for which `most_seconds` leave no time: pricing a way takes milliseconds, unless sizes are absurd. Local.
std::vector<MemoryWay> ways_with_less_memory(const LoadedConfig& loaded, const ConfigOptions& options,
                                             const RankOptions& ranks, const std::vector<RankPlace>& places,
                                             const MemoryNeed& shortage, const launch::Environment& environment,
                                             double most_seconds);

}  // namespace orthant::cli
