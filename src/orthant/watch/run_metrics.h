// A run's numbers as Prometheus reads them.
#pragma once

#include <string>

#include "orthant/report/diagnosis.h"

namespace orthant::watch {

// Of the last step, and what happened so far. Numbers that the run has not told of are left out.
std::string run_metrics(const report::RunFolder& run, report::RunState state);

}  // namespace orthant::watch
