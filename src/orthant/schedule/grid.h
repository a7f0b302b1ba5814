// Pictures and counts of a table: the time-by-rank grid for people, a window of it for errors, and how many
// microbatches a rank holds.
#pragma once

#include <string>
#include <vector>

#include "orthant/schedule/stage_table.h"

namespace orthant {

// A row per rank, a column per time step; every action takes one step and starts when its rank is free and the same
// microbatch has passed the stage before (F) or after (B, BW). Where the ranks would wait for each other for ever, the
// first of the waiting actions goes ahead, so that every table has a picture.
std::string grid_text(const StageTable& table);

// An action of a table, or of a lowered list, by where it stands.
struct ActionPlace {
  int rank = 0;
  int position = 0;
};

// A row per rank, a column per position; the marked actions stand in brackets, and only their surroundings are shown.
// The last line has no end.
std::string marked_grid(const StageTable& table, const std::vector<ActionPlace>& marks);

// Per rank, the most (stage, microbatch) pairs whose forward has run and whose backward (BW, or W when split) has not.
// A forward-only table keeps nothing: one.
std::vector<int> peak_in_flight(const StageTable& table);

}  // namespace orthant
