// The kernels behind reduce(), one set per instruction set. Each namespace below is one file, reduce_<isa>.cpp,
// compiled with that instruction set's flags around the same source, reduce_kernels.inc. Internal to the reduce files.
#pragma once

#include <cstddef>

#include "orthant/shm/dtype.h"

namespace orthant::shm {

// As reduce(), for at least two inputs and the elements [begin, begin + count).
using ReduceKernel = void (*)(char* output, const char* const* inputs, int num_inputs, std::size_t begin,
                              std::size_t count);

namespace plain {
ReduceKernel kernel(Dtype dtype, Reduce op);
}
namespace avx2 {
ReduceKernel kernel(Dtype dtype, Reduce op);
}
namespace avx512 {
ReduceKernel kernel(Dtype dtype, Reduce op);
}

}  // namespace orthant::shm
