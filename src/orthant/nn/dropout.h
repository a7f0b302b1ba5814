// Dropout whose mask is a function of (seed, step, site, row in the global batch, position, channel): any mesh, any
// microbatching and any recomputation drops the same elements. Nothing is kept: backward draws the mask again. Local.
#pragma once

#include "orthant/nn/pass.h"

namespace orthant::nn {

// x [rows, channels] or [rows, sequence, channels]; [own tokens, channels] where the pass cuts tokens. Element (row,
// position, channel) has index
// ((first_row + row) * kMaxPositions + position) * kMaxChannels + channel of the site's stream. Identity when p is 0 or
// the pass is not training.
at::Tensor dropout(const at::Tensor& x, double p, std::string_view site, Pass& pass);

// residual + dropout(x), of one shape.
at::Tensor dropout_add(const at::Tensor& x, const at::Tensor& residual, double p, std::string_view site, Pass& pass);

// Strides of the global index. A row's elements do not move when the batch is padded to another sequence length.
inline constexpr std::uint64_t kMaxPositions = 1ULL << 20;
inline constexpr std::uint64_t kMaxChannels = 1ULL << 20;

// The factors themselves, 0 or 1 / (1 - p), with p rounded down to a multiple of 2^-16: [rows, positions, channels] in
// the dtype and on the device asked for. `first_position` and `first_channel` are global: a rank with a slice of the
// sequence or of the channels draws its part.
at::Tensor dropout_factors(const Pass& pass, std::string_view site, double p, at::IntArrayRef shape,
                           const at::TensorOptions& options, std::int64_t first_position = 0,
                           std::int64_t first_channel = 0);

}  // namespace orthant::nn
