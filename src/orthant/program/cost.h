// What units cost, from their programs. Pure.
//
// Note [What a cost counts]: FLOPs of matrix products (2 m n k) and of attention's two products; norms, activations,
// lookups, sums and losses count 0. Attention's backward is twice its forward, all of it in input_flops. Kept bytes are
// the values that a program keeps from forward to backward, deferred bytes those that wait for the gradients of the
// weights: activations in the compute dtype, statistics in float32 (float64 when computing in it); ids and masks are
// not counted. With tensor parallelism a cost is that of one tp rank, the one with the largest parts.
#pragma once

#include "orthant/program/program_cache.h"

namespace orthant {

// Sets the cost of every unit that has a body. Shapes of `graph` are those of one microbatch; what is trained and needs
// a gradient is what its specs say. `sharing`: of a graph that is not resolved. `only`: of the unit of that name.
void add_costs(GraphSpec& graph, const TensorSharing& sharing = {}, std::string_view only = {},
               ProgramCache* cache = nullptr);

// Sets the bytes that recomputable units keep where nothing but the results of `operations` is made again.
void set_kept_bytes(GraphSpec& graph, const std::vector<std::string>& operations);

// The share of a sequence's scores that masks leave, of all pairs of tokens: half under a causal mask, and less where a
// query sees the last `window` keys alone (0: all before it).
double attended_share(bool causal, std::int64_t window, std::int64_t sequence);
double attended_share(const Attributes& attention, std::int64_t sequence);

}  // namespace orthant
