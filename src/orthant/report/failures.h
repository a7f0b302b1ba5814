// Findings on runs that ended badly or hang: by the launcher's verdict, by what ranks said, by their last events. Used
// by diagnosis.cpp alone.
#pragma once

#include "orthant/report/diagnosis.h"

namespace orthant::report {

// Empty when nothing shows a failure.
std::vector<Finding> find_failures(const RunFolder& run, const Observed& observed);

// Why a run that works is slow: by the times of its last steps.
std::vector<Finding> find_slowness(const RunFolder& run);

}  // namespace orthant::report
