// Dropout whose mask is a function of (seed, step, site, row in the global batch, position, channel): any mesh, any
// microbatching and any recomputation drops the same elements. Nothing is kept: backward draws the mask again. Element
// (row, position, channel) has index ((first_row + row) * kMaxPositions + position) * kMaxChannels + channel of the
// site's stream. Local.
#pragma once

#include "orthant/nn/pass.h"
#include "orthant/ops/dropout/cpu_kernels.h"

namespace orthant::nn {

// Strides of the global index. A row's elements do not move when the batch is padded to another sequence length.
inline constexpr std::uint64_t kMaxPositions = 1ULL << 20;
inline constexpr std::uint64_t kMaxChannels = 1ULL << 20;

// Whether a site drops anything in this pass. InternalError unless 0 <= p <= 1.
bool drops(double p, const Pass& pass);

// A site's factors over a matrix of tokens: everything a backward needs to draw them again, as plain values. With
// n = first_token + t, matrix row t holds the channels of position first_position + n % positions of batch row
// first_row + n / positions; where a rank has two pieces of each row, positions of the second are `jump` further.
struct DropoutGrid {
  kernels::DropoutDraw draw = {};
  std::uint64_t first_row = 0;
  std::uint64_t positions = 1;
  std::uint64_t first_token = 0;
  std::uint64_t first_position = 0;
  std::uint64_t first_channel = 0;
  std::uint64_t second_piece = kMaxPositions;  // n % positions from which on the second piece is
  std::uint64_t jump = 0;
  at::Tensor stream = {};                 // on a device: the draw's stream, see nn/device_streams.h; else undefined
  const TokenRows* token_rows = nullptr;  // of unpadded tokens: says the row and position of token n; on the CPU

  // Index in the stream of the first element of matrix row `token`.
  std::uint64_t index(std::int64_t token) const {
    const std::uint64_t n = first_token + static_cast<std::uint64_t>(token);
    const std::uint64_t column = n % positions;
    std::uint64_t row = first_row + n / positions;
    std::uint64_t position = first_position + column + (column >= second_piece ? jump : 0);
    if (token_rows != nullptr) {
      row = first_row + static_cast<std::uint64_t>(token_rows->row.const_data_ptr<std::int64_t>()[n]);
      position = static_cast<std::uint64_t>(token_rows->position.const_data_ptr<std::int64_t>()[n]);
    }
    return (row * kMaxPositions + position) * kMaxChannels + first_channel;
  }
};

// For x [rows, channels] or [rows, positions, channels]; where the pass cuts tokens [own tokens, channels].
// `first_channel` is global: a rank with a slice of the channels draws its part. Positions are those that the pass has
// of each row, unless `first_position` says where they begin. p is rounded down to a multiple of 2^-16. InternalError
// for another shape or a larger one than the strides of the global index allow.
DropoutGrid dropout_grid(const Pass& pass, std::string_view site, double p, at::IntArrayRef shape,
                         std::int64_t first_position = 0, std::int64_t first_channel = 0);

// The factors [tokens, channels] by integer arithmetic of ATen, for devices and as the kernels' oracle. `options` name
// a floating dtype.
at::Tensor plain_dropout_factors(const DropoutGrid& grid, std::int64_t tokens, std::int64_t channels,
                                 const at::TensorOptions& options);

// x times its factors, in x's dtype and shape; the last dim holds channels, the others tokens.
at::Tensor apply_dropout(const DropoutGrid& grid, const at::Tensor& x);

// residual + x times its factors.
at::Tensor dropout_sum(const DropoutGrid& grid, const at::Tensor& x, const at::Tensor& residual);

}  // namespace orthant::nn
