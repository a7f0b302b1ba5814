// How many tokens a block of the cache of keys and values has: those that decide who has which blocks and those that
// read them agree on it. See nn/key_cache.h.
#pragma once

#include <cstdint>

namespace orthant {

inline constexpr std::int64_t kCacheBlock = 16;

}  // namespace orthant
