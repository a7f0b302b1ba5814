// Microbatches without padding, from fields on the host: see Note [Unpadded rows] in nn/token_rows.h. Local.
//
// Note [Few token totals]: a device records a step for each shape of its inputs, so shapes are few and the same in
// every run. Totals of tokens are rounded up to multiples of a sixteenth of what a padded microbatch has in all its
// texts: two towers then have few pairs of totals, and texts of one tower sixteen totals at most. All microbatches of a
// step have the totals of the largest.
#pragma once

#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/graph/spec.h"
#include "orthant/parallel/data/precision.h"
#include "orthant/runtime/executor.h"

namespace orthant {

// A microbatch has a multiple of so many tokens: products and buffers of few sizes.
inline constexpr std::int64_t kTokenBucket = 64;
inline constexpr std::int64_t kTokenTotals = 16;  // see Note [Few token totals]

// The batch's rows in `count` microbatches. Fields that padded_fields() puts together are [1, tokens] there, where that
// is less than they have; their padding is gone. Behind the last row come tokens without targets. `few_totals`: for a
// device that records steps.
std::vector<Microbatch> unpadded_microbatches(const Batch& batch, int count, bool few_totals = false);

// Why microbatches of this graph keep their padding on the device; empty: they lose it.
std::string padding_obstacle(const GraphSpec& graph, const Precision& precision, at::Device device);

}  // namespace orthant
