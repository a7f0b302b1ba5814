// A link from measured times. Pure.
#pragma once

#include <vector>

#include "orthant/plan/estimate/hardware.h"

namespace orthant {

// Seconds of something that waits for `hops` latencies and moves `bytes`.
struct LinkSample {
  double hops = 0;
  double bytes = 0;
  double seconds = 0;
};

// The latency and bandwidth that come nearest to the samples, of which there is at least one: least squares of the
// relative errors, so that small messages count as much as large ones. A latency below 0 counts as 0.
Link fit_link(const std::vector<LinkSample>& samples);

}  // namespace orthant
