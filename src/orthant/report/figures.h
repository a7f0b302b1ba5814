// The few numbers that say how far a run is and how it goes.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "orthant/report/run_folder.h"

namespace orthant::report {

// NaN: not known. Times and speeds are medians of the last thousand steps.
struct KeyFigures {
  std::int64_t steps = 0;
  std::int64_t planned_steps = 0;  // 0: not known
  double loss = NAN, eval_loss = NAN, step_seconds = NAN, tokens_per_second = NAN, memory = NAN, flops = NAN;
};

KeyFigures key_figures(const RunFolder& run);

// Names and values as people read them: {"loss", "2.31"}.
std::vector<std::pair<std::string, std::string>> figure_texts(const RunFolder& run);

// A number of the last step; NaN where there is none.
double last_of(const RunFolder& run, const std::string& name);

}  // namespace orthant::report
