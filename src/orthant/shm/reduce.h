// Element-wise reduction of buffers that lie in this process's memory. Everything is Local and may run on any thread.
//
// Note [Reduction bits]: element i of the result is a pure function of element i of the inputs, in their order:
// ((a0 op a1) op a2) op ... . bf16 and f16 are accumulated as f32 and rounded once, to nearest even. So the bits are
// the same for every instruction set, wherever a range is cut and on whichever rank it is reduced; only the payload of
// a NaN is left open. Integers wrap. max gives NaN when any input is NaN, and the later one of two zeros.
#pragma once

#include <cstddef>

#include "orthant/shm/dtype.h"

namespace orthant::shm {

// The instruction sets there are kernels for; plain runs everywhere.
enum class Isa { plain, avx2, avx512 };

// Whether this CPU and its operating system can run the kernels.
bool supported(Isa isa);

// The widest supported one, found out once.
Isa best_isa();

// Reduces num_inputs >= 1 buffers of `count` elements. Pointers need no alignment. `output` may be one of the inputs
// (the very same pointer); other overlap is not allowed. `isa` must be supported; without it, the fastest is taken.
void reduce(Isa isa, Dtype dtype, Reduce op, void* output, const void* const* inputs, int num_inputs,
            std::size_t count);
void reduce(Dtype dtype, Reduce op, void* output, const void* const* inputs, int num_inputs, std::size_t count);

// Writes the same result to num_outputs >= 1 buffers, each of which may be one of the inputs: with outputs equal to
// inputs it is an all-reduce in place. Outputs must not overlap each other, except for being the very same.
void reduce_to_many(Dtype dtype, Reduce op, void* const* outputs, int num_outputs, const void* const* inputs,
                    int num_inputs, std::size_t count);

}  // namespace orthant::shm
