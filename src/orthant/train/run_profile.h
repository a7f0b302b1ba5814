// A profile of some steps of a trainer: every operation, exchange and wait of every rank, on one clock. train
// --profile, bench step --profile and a program's own profile are this.
#pragma once

#include <string>
#include <vector>

#include "orthant/comm/control_group.h"
#include "orthant/trace/step_table.h"
#include "orthant/train/step_profile.h"
#include "orthant/train/trainer.h"

namespace orthant {

// Which steps: so many once the first, cold ones are done, or those from `first` on.
struct ProfiledSteps {
  std::int64_t first = -1;  // -1: as soon as the run is warm
  std::int64_t count = 0;   // 0: none

  // "5" or "10-14". ConfigError.
  static ProfiledSteps parse(const std::string& text);
};

struct RunProfile {
  StepProfile stages;
  // Of rank 0; the others have none of these.
  trace::StepTable table;
  std::vector<trace::RankTrace> ranks;

  std::string text(std::size_t most_lines = 20) const { return trace::to_text(table, most_lines); }
  std::string chrome_trace() const;
  // The table, and the stages' schedule as it ran and as the simulator would run it: one document.
  std::string json() const;
};

// Records the steps that the trainer makes while it lives. On a device each action waits for the device at both ends,
// so that times are those of the work, and the step is not played back as one graph; kernels are in bench step
// --kernels.
class RunProfiler {
 public:
  explicit RunProfiler(Trainer& trainer);

  // Of the steps made so far; at least one. Aligns the ranks' clocks and measures what the machine can do.
  // Collective over the world.
  RunProfile result(const ControlGroup& ranks) const;

 private:
  Trainer& trainer_;
  StepProfiler profiler_;
};

// What a rank reaches here in products and in copies while all ranks measure: the mean. Collective over the world.
trace::Limits measured_limits(const Trainer& trainer, const ControlGroup& ranks);

// IoError.
void write_profile_file(const std::string& path, const std::string& text);

}  // namespace orthant
