// Puts the operations of forward and backward into the lists that run: which values are kept, which are made again and
// where, when exchanges start and are waited for, what is freed. Pure. Internal to this layer.
#pragma once

#include "orthant/program/differentiate.h"

namespace orthant {

// Fills forward, both, input_part, weight_part, kept and deferred of a program whose values are there. Exchanges are
// operations "start" and "wait" in them.
void make_lists(Program& program, const PlacedBody& body, const Differentiated& backward,
                const ProgramOptions& options);

// Frees every value after its last use in each list.
void add_frees(Program& program);

}  // namespace orthant
