// Which slots their experts have room for.
//
// Note [Capacity]: of every row of the batch an expert with a capacity of c takes the first c tokens that choose it, in
// the order of their positions. Slots of later ones are dropped: they have no row, add nothing to their token, and the
// weights of its other slots stay as they are. A row's tokens are the same on every mesh and in every microbatch, so
// that the same slots are dropped everywhere; ranks that have parts of a row tell each other what its tokens choose.
#pragma once

#include <ATen/core/Tensor.h>

#include "orthant/nn/pass.h"

namespace orthant::nn {

// Per slot of `chosen` [tokens, per_token], which are of the rank's own tokens or of all, whether there is room for it.
// Collective over tp where `own` says that tp ranks have their own tokens, and over cp.
at::Tensor slots_with_room(const at::Tensor& chosen, std::int64_t experts, std::int64_t capacity, const Pass& pass,
                           bool own);

}  // namespace orthant::nn
