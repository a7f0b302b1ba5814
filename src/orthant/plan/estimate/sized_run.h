// A run of a unit over sizes alone: the operations of its program in their order, each with the memory it takes, keeps
// for backward and gives back, and the random numbers it draws. Forward and backward of the runtime have their worst
// moments where this has them.
#pragma once

#include <optional>

#include "orthant/graph/spec.h"
#include "orthant/plan/estimate/plan_settings.h"
#include "orthant/program/sizes.h"

namespace orthant {

// Bytes, and factors of dropout, of one microbatch on one rank. A moment counts all that the run has: what it was
// given, keeps and hands on.
struct SizedRun {
  double kept = 0;      // from forward to backward, by settings.recompute
  double deferred = 0;  // from B to W
  double forward = 0;   // at the worst moment, as the next three
  double backward = 0;
  double inputs = 0;   // of a backward that leaves the gradients of weights for later
  double weights = 0;  // of those

  double forward_drawn = 0;  // factors of dropout
  double inputs_drawn = 0;   // drawn again, what is made again included
  double weights_drawn = 0;

  // The first three where forward makes gradients (gradients_in_forward()): of a head that is the loss, too.
  struct InForward {
    double kept = 0;
    double forward = 0;
    double backward = 0;
  };
  std::optional<InForward> in_forward = {};

  // Bytes that kernels without products read and write, without those of scores and of what is made again. Of a device.
  double forward_moved = 0;
  double backward_moved = 0;
  double weights_moved = 0;  // of a split backward, while the gradients of weights are made
};

// Of a rank among those of cp.
struct ContextPlace {
  ContextSharing sharing = {};
  int coordinate = 0;
};

// Of a unit's programs, and of one that makes gradients in forward where the unit has such.
SizedRun run_sized(const Program& program, const Program* in_forward, const UnitSizes& sizes,
                   const PlanSettings& settings, const ContextPlace& place = {});
// The most of any rank of cp at each of these moments.
SizedRun most_sized(const Program& program, const Program* in_forward, const UnitSizes& sizes,
                    const PlanSettings& settings, const ContextSharing& sharing);
// `unit` belongs to the resolved graph. Zeros for a user's own modules. Of this coordinate of cp.
SizedRun run_sized(const GraphSpec& resolved, const UnitSpec& unit, const PlanSettings& settings, int coordinate = 0);

// The names of what settings.recompute and settings.remade make again; of published runs' `op` nothing.
Remake remake_of(const PlanSettings& settings);

}  // namespace orthant
