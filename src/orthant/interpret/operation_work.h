// How much one operation of a program works, by the tensors that it reads at the moment: what a profile divides its
// time by. FLOPs are counted as program/cost.h counts them. Local.
#pragma once

#include <cstdint>

#include "orthant/nn/frame.h"
#include "orthant/program/program.h"

namespace orthant {

// Of matrix products and attention; 0 for all others. `parameter_elements`: of the operation's parameters on this rank.
double operation_flops(const Program& program, const Operation& operation, const Frame& frame,
                       std::int64_t parameter_elements);

// That the operation reads: values and parameters, each once.
std::int64_t operation_bytes(const Operation& operation, const Frame& frame, std::int64_t parameter_elements);

}  // namespace orthant
