// Shared memory of the running block: static variables first, then what the launch asked for. Addresses of instructions
// are counted from its beginning. Under the address sanitizer what a launch does not have may not be touched.
#pragma once

#include <cstddef>

namespace emulated_card {

inline constexpr unsigned kStaticBytes = 48 << 10;
inline constexpr unsigned kDynamicBytes = 232448;  // of a block at most

// Before each block: everything in it is NaN.
void clear_shared(unsigned dynamic_bytes);

}  // namespace emulated_card
