// How the monotonic clocks of ranks differ: those of hosts count from other moments, and a time namespace shifts them.
// Rank 0 and each other rank exchange times; the answer that came back fastest bounds the difference best.
#pragma once

#include <cstdint>

#include "orthant/comm/control_group.h"

namespace orthant {

struct ClockOffset {
  std::int64_t offset_ns = 0;  // to be added to this rank's times for those of rank 0
  std::int64_t error_ns = 0;   // half of the fastest round trip: the offset is no further off
};

inline constexpr int kQuickClockRounds = 16;  // at the start of a run
inline constexpr int kGoodClockRounds = 200;  // of a profile

// Collective over the world; ranks take turns.
ClockOffset align_clock(const ControlGroup& ranks, int rounds);

}  // namespace orthant
