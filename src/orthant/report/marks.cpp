#include "orthant/report/marks.h"

#include <algorithm>
#include <cstdio>

namespace orthant::report {

std::vector<Mark> marks_of(const RunFolder& run) {
  std::vector<Mark> marks;
  for (const auto step : run.checkpoints) marks.push_back({step, "checkpoint"});
  std::int64_t at = 0;
  int starts = 0;
  for (const auto& line : run.log) {
    if (line.rank != 0) continue;
    long long step = 0;
    if (std::sscanf(line.text.c_str(), "saved the checkpoint of step %lld", &step) == 1) at = step;
    if (std::sscanf(line.text.c_str(), "step %lld: loss", &step) == 1 &&
        line.text.find("the update was left out") != std::string::npos) {
      marks.push_back({step, "bad step"});
    }
    if (line.text.find(" started: host ") != std::string::npos && starts++ > 0) marks.push_back({at, "restart"});
  }
  return marks;
}

int count_of(const std::vector<Mark>& marks, const std::string& kind) {
  return static_cast<int>(std::ranges::count(marks, kind, &Mark::kind));
}

}  // namespace orthant::report
