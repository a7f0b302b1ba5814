// A simulated schedule as a picture for pages and browsers: boxes of actions, time by pp coordinate.
#pragma once

#include <string>

#include "orthant/schedule/simulate.h"

namespace orthant {

// Each box has stage, kind and microbatch; beside the rows stand idle time and kept microbatches, above them a legend.
// The colours are told apart with any colour vision and, with the letters and the hatching, in grey. One SVG document.
std::string timeline_svg(const Simulation& simulation, const std::string& title);

}  // namespace orthant
