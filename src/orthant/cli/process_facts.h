// Facts about this process that commands report: memory, start time, executable.
#pragma once

#include <cstdint>
#include <string>

namespace orthant::cli {

// Makes malloc keep what is freed instead of giving it back to the system: a fresh page costs more than a step's copy.
void keep_freed_memory();

std::string own_path();

// Seconds on the monotonic clock: now, and when this process was created. The latter is exact to two clock ticks (20
// ms) and costs a fork: the kernel's start times are on a clock of their own, so they are compared with that of a new
// child.
double now_seconds();
double process_start_seconds();

// Memory of this process, pages shared with others counted in parts. 0 where the kernel does not tell.
int64_t proportional_set_bytes();

}  // namespace orthant::cli
