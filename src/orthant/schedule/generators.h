// The tables of the named schedules. Stage s runs on rank s. All are Local and pure; fewer than one stage or microbatch
// is a ConfigError.
#pragma once

#include "orthant/schedule/stage_table.h"

namespace orthant {

// One rank, one stage: F0 BW0 F1 BW1 ...
StageTable one_stage(int microbatches);

// All forwards, then all backwards, both in microbatch order.
StageTable gpipe(int stages, int microbatches);

// Rank i runs p-1-i forwards ahead, then alternates: at most p-i microbatches are in flight.
StageTable one_forward_one_backward(int stages, int microbatches);

// For evaluation.
StageTable forward_only(int stages, int microbatches);

// The same stages on one rank: the ranks' queues are run in turns, an action as soon as the stages before it (F) or
// after it (B, BW) have done the same microbatch. So edges between stages can be tried without communication. The map
// to go with it is on_one_rank(StageMap). ConfigError when the queues block each other.
StageTable on_one_rank(const StageTable& table);

}  // namespace orthant
