// What happened at single steps of a run, as its log and folder tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/report/run_folder.h"

namespace orthant::report {

// Something that happened at a step, drawn as a mark on the axis of steps.
struct Mark {
  std::int64_t step = 0;
  std::string kind;  // "checkpoint", "restart", "bad step"
};

std::vector<Mark> marks_of(const RunFolder& run);
int count_of(const std::vector<Mark>& marks, const std::string& kind);

}  // namespace orthant::report
