// Copying memory that is too large to stay in a cache.
#pragma once

#include <cstddef>

namespace orthant::shm {

// As memcpy; nothing for 0 bytes or equal pointers. With `streaming` the stores go past the caches: for a piece of a
// tensor that would push everything else out of them and be pushed out itself before anybody reads it.
void copy_bytes(std::byte* output, const std::byte* input, std::size_t bytes, bool streaming = false);

// From this size on a tensor is copied with streaming stores.
inline constexpr std::size_t kStreamingBytes = std::size_t{8} << 20;

}  // namespace orthant::shm
