// Stages as `estimate` is told them: layers per stage, the embedding with the first, the head with the last.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/plan/estimate/unit_work.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// Layers of each stage. "even": the same for all; where they do not divide, the stages with head and embedding have
// one less, then their neighbours. "2,3,3,2": as given. ConfigError when they do not add up.
std::vector<std::int64_t> layers_per_stage(const std::string& split, std::int64_t layers, int stages);

// The stages of a chain (embedding, layers, head); stage s on pp_coordinates[s].
StageMap chain_stages(const std::vector<std::int64_t>& layers, const std::vector<int>& pp_coordinates);

// The units of each stage by name, for PipelineSettings::split; what comes before the first layer goes to the first
// stage, what comes after the last layer to the last. Nothing where layers are not one run of units: then the cut is
// automatic.
std::vector<std::vector<std::string>> named_split(const GraphSpec& graph, const std::string& split, int stages);

}  // namespace orthant
