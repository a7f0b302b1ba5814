// The stages of a pipeline in words, for people who start a run.
#pragma once

#include <string>

#include "orthant/schedule/pipeline.h"

namespace orthant {

// "pipeline of 2 stages on 2 pp coordinates, the heaviest at 1.04 of the mean", then one line per stage with its pp
// coordinate and its units, layers in runs. The last line has no end.
std::string stage_lines(const Pipeline& pipeline, const GraphSpec& graph);

}  // namespace orthant
