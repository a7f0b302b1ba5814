// The tables of the named schedules. All are Local and pure; any number of microbatches will do, fewer than stages too,
// and fewer than one stage or microbatch is a ConfigError. Weight gradients of a stage are in microbatch order in all
// of them. Times and memory of each: docs/schedules.md.
#pragma once

#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/stage_table.h"

namespace orthant {

// One pp coordinate, one stage: F0 BW0 F1 BW1 ...
StageTable one_stage(int microbatches);

// Stage s on pp s: all forwards, then all backwards, both in microbatch order.
StageTable gpipe(int stages, int microbatches);

// Stage s on pp s, which runs p-1-s forwards ahead, then alternates: at most p-s microbatches are in flight. With
// edges it runs as many ahead as its longest path to a last stage has edges, so that branches run side by side.
StageTable one_forward_one_backward(int stages, int microbatches);
StageTable one_forward_one_backward(const StageEdges& edges, int microbatches);

// Zero bubble, first handcrafted schedule: the order of 1f1b with B and W apart, W of pp s later by s microbatches,
// where it fills what were bubbles. p-s microbatches wait for their B and s for their W: p in all on every pp
// coordinate. With edges, paths take the place of p-1-s as above, and every stage holds as many as the one with the
// longest path.
StageTable zbh1(int stages, int microbatches);
StageTable zbh1(const StageEdges& edges, int microbatches);

// Stage s on pp s % p, `virtual_stages` on each: pp i runs groups of p microbatches through its first stage, then
// its second, and so on; 1f1b over these, (v-1)p + 2(p-1-i) ahead. A group of fewer than p takes the time of p.
StageTable interleaved(int pp_degree, int virtual_stages, int microbatches);

// Zero bubble, V: two stages on each pp coordinate, s and 2p-1-s, so that the first and the last are on pp 0. B and W
// apart; 2p (stage, microbatch) pairs in flight, as much memory as 1f1b has on pp 0, on every pp coordinate. With equal
// F, B and W and at least 2p-1 microbatches no pp coordinate waits after its first action.
StageTable zbv(int pp_degree, int microbatches);

// For evaluation. Stage s on pp s.
StageTable forward_only(int stages, int microbatches);

// The same stages on one pp coordinate: the pp coordinates' queues are run in turns, an action as soon as the stages
// before it (F) or after it (B, BW) have done the same microbatch. So edges between stages can be tried without
// communication. The map to go with it is on_one_pp_coordinate(StageMap). Without edges the stages are a chain; a table
// that follows a graph's edges may need those. ConfigError when the queues block each other.
StageTable on_one_pp_coordinate(const StageTable& table);
StageTable on_one_pp_coordinate(const StageTable& table, const StageEdges& edges);

}  // namespace orthant
