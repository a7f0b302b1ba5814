// Proof that a schedule runs, before anything does. Both functions are Local and pure, return when the schedule is
// sound, and otherwise throw a ConfigError that names the action or the cycle and shows its surroundings.
#pragma once

#include <vector>

#include "orthant/schedule/actions.h"
#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// Every stage runs on the pp coordinate the map gives it; every (stage, microbatch) has one F, then one BW, or one B
// and later one W (no backward at all in a forward-only table); the weight gradients of a stage come in microbatch
// order; and the lowered lists pass validate_actions. With `max_in_flight`, one number per pp coordinate, no pp
// coordinate keeps the activations of more (stage, microbatch) pairs at once (grid.h: peak_in_flight).
void validate(const StageTable& table, const StageMap& map, const GraphSpec& graph,
              const std::vector<int>& max_in_flight = {});

// The same for a table alone: its stages are a chain, one unit each, on `pp_coordinates`.
void validate_chain(const StageTable& table, const std::vector<int>& pp_coordinates,
                    const std::vector<int>& max_in_flight = {});

// The lists of all pp coordinates, run with buffered sends and blocking receives, end: every unit on one pp coordinate
// with one forward and one backward (or B, then W) per microbatch, after what it needs is there; weight gradients in
// microbatch order; one reduce per unit that holds trainable parameters, after its last weight gradient; every send
// received, in the order of its channel.
void validate_actions(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches);

}  // namespace orthant
