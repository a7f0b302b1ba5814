// Pictures and counts of a table: the grid of time by pp coordinate for people, a window of it for errors, and how many
// microbatches a pp coordinate holds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

// Cells of one width under a line of column heads; row r is called "pp r".
using GridRows = std::vector<std::vector<std::string>>;
std::string draw_grid(std::string_view corner, const std::vector<std::string>& columns, const GridRows& rows);

// A row per pp coordinate, a column per time step; every action takes one step and starts when its pp coordinate is
// free and the same microbatch has passed the stages before (F) or after (B, BW): a chain unless edges are given. Where
// the pp coordinates would wait for each other for ever, the first of the waiting actions goes ahead, so that every
// table has a picture.
std::string grid_text(const StageTable& table);
std::string grid_text(const StageTable& table, const StageEdges& edges);

// An action of a table, or of a lowered list, by where it stands.
struct ActionPlace {
  int pp_coordinate = 0;
  int position = 0;
};

// A row per pp coordinate, a column per position; the marked actions stand in brackets, and only their surroundings are
// shown. The last line has no end.
std::string marked_grid(const StageTable& table, const std::vector<ActionPlace>& marks);

// Per pp coordinate, the most (stage, microbatch) pairs whose forward has run and whose backward (BW, or W when split)
// has not. A forward-only table keeps nothing: one.
std::vector<int> peak_in_flight(const StageTable& table);

// The same per stage.
std::vector<int> stage_peaks(const StageTable& table);

}  // namespace orthant
