// Microbatches without padding, from fields on the host: see Note [Unpadded rows] in nn/token_rows.h. Local.
#pragma once

#include <vector>

#include "orthant/data/batch.h"
#include "orthant/runtime/executor.h"

namespace orthant {

// A microbatch has a multiple of so many tokens: products and buffers of few sizes.
inline constexpr std::int64_t kTokenBucket = 64;

// The batch's rows in `count` microbatches. Fields that padded_fields() puts together are [1, tokens] there, where that
// is less than they have; their padding is gone. Behind the last row come tokens without targets.
std::vector<Microbatch> unpadded_microbatches(const Batch& batch, int count);

}  // namespace orthant
