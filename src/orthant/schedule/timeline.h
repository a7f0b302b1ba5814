// A simulated schedule as text for terminals, time by pp coordinate. svg.h draws the same for pages.
#pragma once

#include <string>

#include "orthant/schedule/simulate.h"

namespace orthant {

// A row per pp coordinate; "-" continues an action, "." is idle. Columns are equal steps of time where few enough of
// them show every start and end, and otherwise the moments at which actions start.
std::string timeline_text(const Simulation& simulation);

}  // namespace orthant
