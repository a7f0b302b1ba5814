// From the text of a kernel's source, macros expanded, to C++ for the emulated card. Three things need it:
// - asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits)) becomes a call of the function named after the instruction,
//   with its operands in their order: ptx_cvt_f32_f16(value, bits). An empty one becomes nothing.
// - Variables in __shared__ memory become references to the running block's.
// - __global__ functions get one that takes arguments as the driver has them, and one that tells __launch_bounds__.
// Unrolling is left out: it costs the compiler time.
#pragma once

#include <string>
#include <string_view>

namespace emulated_card {

struct Translation {
  std::string text;
  std::string problem;  // empty, or why there is no text
};

Translation translate(std::string_view preprocessed);

}  // namespace emulated_card
