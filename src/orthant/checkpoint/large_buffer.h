// Zeroed memory for parameters that are about to be read from a file. The system maps all its pages in one call, which
// costs half of what as many page faults do, and no pass of zeroing is made over them. Huge pages would be faster where
// the system has some ready and several times slower where it must move others first: so none are asked for.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace orthant {

// One-dimensional, on the CPU; given back to the system with the last tensor that sees it. Throws std::bad_alloc.
at::Tensor make_large_buffer(std::int64_t elements, at::ScalarType type);

}  // namespace orthant
