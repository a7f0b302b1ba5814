// What the stages of a pipeline really took in some steps: actions of units, timed on every rank, put together by
// stage. The simulator makes a step of these costs, so that prediction and run can be compared, and the automatic cut
// takes the units' seconds in place of FLOPs.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "orthant/comm/control_group.h"
#include "orthant/schedule/simulate.h"
#include "orthant/train/trainer.h"

namespace orthant {

struct StepProfile {
  StageCosts costs;                            // per stage: medians in seconds; BW counts as B when it is not split
  std::map<std::string, double> unit_seconds;  // F + B + W of a microbatch: medians
  double list_seconds = 0;       // from the first action of a rank to its last, the slowest rank's: median
  double simulated_seconds = 0;  // the same by the simulator from `costs`, sending for free
  std::vector<double> busy;      // per pp coordinate: in actions of units, a step; medians
  Simulation last_step;          // when the stages' actions ran, as the simulator would say it
  Simulation simulated;          // and when they would by the simulator
};

// Times the steps that the trainer makes while it lives.
class StepProfiler {
 public:
  explicit StepProfiler(Trainer& trainer, trace::Capture::Of depth = trace::Capture::Of::actions);
  ~StepProfiler();
  StepProfiler(const StepProfiler&) = delete;
  StepProfiler& operator=(const StepProfiler&) = delete;

  // Of the steps made so far; at least one. The first replica's ranks count. Collective over the world.
  StepProfile result(const ControlGroup& ranks) const;

  // All that this rank did since.
  const trace::Capture& capture() const { return capture_; }

 private:
  Trainer& trainer_;
  trace::Capture capture_;
};

}  // namespace orthant
