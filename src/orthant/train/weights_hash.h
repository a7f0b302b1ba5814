// A fingerprint of the weights that needs no gathering: a wrapping sum over all global elements of a hash of (parameter
// name, index of the element in the global row-major tensor, bits of its value). Every rank adds what it holds, each
// element once, in any order; the sum of the ranks' sums is the same on any mesh. See Note [Weights hash].
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orthant/base/random.h"

namespace at {
class Tensor;
}

namespace orthant {

// The part of the sum that `piece` holds: its elements are those of `box`, row-major, from `first` on (an fsdp shard is
// such a range; a whole box has first = 0). Values are taken in their own dtype. Local; a tensor on a device is copied
// to the host. InternalError when box, range and piece do not fit.
std::uint64_t partial_weights_hash(std::string_view name, const at::Tensor& piece, const TensorBox& box,
                                   std::int64_t first = 0);

// Of one element. The oracle of the function above.
std::uint64_t element_hash(std::string_view name, std::uint64_t index, std::uint64_t bits);

// 16 hexadecimal digits.
std::string weights_hash_text(std::uint64_t hash);

}  // namespace orthant
