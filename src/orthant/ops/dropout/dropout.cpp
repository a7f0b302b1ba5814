#include "orthant/ops/dropout/dropout.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "orthant/base/error.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_streams.h"
#include "orthant/nn/kernels/tensors.h"
#include "orthant/ops/dropout/dropout_device.h"

namespace orthant::nn {
namespace {

constexpr std::int64_t kLowHalf = 0xffffffff;

// Philox 4x32-10 (base/philox.h) on a tensor of block numbers: [..., 4 words]. 64-bit products wrap, which leaves all
// their bits right.
at::Tensor philox_words(const at::Tensor& blocks, const DropoutGrid& grid) {
  const auto& draw = grid.draw;
  const at::Tensor stream =
      grid.stream.defined() ? grid.stream : at::full({}, static_cast<std::int64_t>(draw.stream), blocks.options());
  at::Tensor word0 = blocks.bitwise_and(kLowHalf);
  at::Tensor word1 = blocks.bitwise_right_shift(32);
  at::Tensor word2 = stream.bitwise_and(kLowHalf);
  at::Tensor word3 = stream.bitwise_right_shift(32).bitwise_and_(kLowHalf);
  std::uint32_t key0 = draw.key[0];
  std::uint32_t key1 = draw.key[1];
  for (int round = 0; round < 10; ++round) {
    const at::Tensor product0 = word0 * std::int64_t{0xD2511F53};
    const at::Tensor product1 = word2 * std::int64_t{0xCD9E8D57};
    const auto upper = [](const at::Tensor& product) { return product.bitwise_right_shift(32).bitwise_and_(kLowHalf); };
    word0 = upper(product1).bitwise_xor(word1).bitwise_xor_(static_cast<std::int64_t>(key0));
    word1 = product1.bitwise_and(kLowHalf);
    word2 = upper(product0).bitwise_xor(word3).bitwise_xor_(static_cast<std::int64_t>(key1));
    word3 = product0.bitwise_and(kLowHalf);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return at::stack({word0, word1, word2, word3}, -1);
}

template <class T>
void scale_rows(const DropoutGrid& grid, const at::Tensor& y, const at::Tensor& x) {
  const auto& table = kernels::kernels<kernels::DropoutKernels<T>>();
  const std::int64_t channels = x.size(-1);
  T* out = y.mutable_data_ptr<T>();
  const T* from = x.const_data_ptr<T>();
  kernels::for_rows(x.numel() / std::max<std::int64_t>(channels, 1), channels,
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t t = begin; t < end; ++t) {
                        table.scale(out + t * channels, from + t * channels, grid.draw, grid.index(t), channels);
                      }
                    });
}

}  // namespace

bool drops(double p, const Pass& pass) {
  if (!(p >= 0 && p <= 1)) throw InternalError(fmt::format("dropout of {}: a probability lies in [0, 1]", p));
  return pass.training && p > 0;
}

DropoutGrid dropout_grid(const Pass& pass, std::string_view site, double p, at::IntArrayRef shape,
                         std::int64_t first_position, std::int64_t first_channel) {
  const bool valid = shape.size() == 2 || shape.size() == 3;
  const bool own_tokens = shape.size() == 2 && pass.cuts_tokens();
  if (own_tokens && shape[0] != pass.own_tokens().size()) {
    throw InternalError(fmt::format("dropout {} of {} rows in a pass where a rank has {} tokens", site, shape[0],
                                    pass.own_tokens().size()));
  }
  const std::int64_t positions = own_tokens ? pass.sequence : valid && shape.size() == 3 ? shape[1] : 1;
  const std::int64_t last = pass.context == nullptr ? first_position + positions : pass.positions.all;
  if (!valid || last > static_cast<std::int64_t>(kMaxPositions) ||
      first_channel + shape.back() > static_cast<std::int64_t>(kMaxChannels)) {
    throw InternalError(
        fmt::format("dropout {} of shape [{}] at position {} and channel {}: it takes [rows, channels] or [rows, "
                    "positions, channels] "
                    "with at most {} positions and {} channels",
                    site, fmt::join(shape, ", "), first_position, first_channel, kMaxPositions, kMaxChannels));
  }
  const RandomStream stream = pass.dropout_stream(site);
  const auto threshold = static_cast<std::uint32_t>(std::floor(p * 65536));
  DropoutGrid grid;
  grid.draw = {
      {stream.key()[0], stream.key()[1]}, stream.stream(), threshold, p < 1 ? 1 / (1 - threshold / 65536.0) : 0};
  grid.first_row = static_cast<std::uint64_t>(pass.first_row);
  grid.positions = static_cast<std::uint64_t>(std::max<std::int64_t>(positions, 1));
  grid.first_token = own_tokens ? static_cast<std::uint64_t>(pass.own_tokens().begin) : 0;
  grid.first_position = static_cast<std::uint64_t>(first_position);
  if (pass.context != nullptr && (own_tokens || shape.size() == 3)) {
    grid.first_position = static_cast<std::uint64_t>(pass.positions.pieces[0].begin);
    grid.second_piece = static_cast<std::uint64_t>(pass.positions.second_piece());
    grid.jump = static_cast<std::uint64_t>(pass.positions.jump());
  }
  grid.first_channel = static_cast<std::uint64_t>(first_channel);
  if (pass.streams != nullptr) grid.stream = pass.streams->of(site);
  return grid;
}

at::Tensor plain_dropout_factors(const DropoutGrid& grid, std::int64_t tokens, std::int64_t channels,
                                 const at::TensorOptions& options) {
  const auto integers = at::TensorOptions().dtype(at::kLong).device(options.device());
  const auto positions = static_cast<std::int64_t>(grid.positions);
  const auto first_channel = static_cast<std::int64_t>(grid.first_channel);
  const auto first_token = static_cast<std::int64_t>(grid.first_token);
  const at::Tensor token = at::arange(first_token, first_token + tokens, integers);
  at::Tensor row = token.div(positions, "floor");
  at::Tensor position = token.remainder(positions);
  if (grid.jump > 0) {
    const at::Tensor second = position.ge(static_cast<std::int64_t>(grid.second_piece));
    position = position.add(second.to(at::kLong).mul_(static_cast<std::int64_t>(grid.jump)));
  }
  position = position.add(static_cast<std::int64_t>(grid.first_position));
  if (grid.token_rows != nullptr) {
    row = grid.token_rows->row.flatten().index_select(0, token);
    position = grid.token_rows->position.flatten().index_select(0, token);
  }
  row.add_(static_cast<std::int64_t>(grid.first_row));
  // A block holds eight neighbouring channels.
  constexpr std::int64_t kOfBlock = 8;
  const std::int64_t skipped = first_channel % kOfBlock;
  const at::Tensor eight =
      at::arange(first_channel / kOfBlock, (first_channel + channels + kOfBlock - 1) / kOfBlock, integers);
  const at::Tensor place = row.mul(static_cast<std::int64_t>(kMaxPositions)).add_(position);
  // A stream has 2^64 elements: from its end on it begins anew.
  const at::Tensor blocks = place.mul_(static_cast<std::int64_t>(kMaxChannels) / kOfBlock)
                                .unsqueeze(1)
                                .add(eight)
                                .bitwise_and_((std::int64_t{1} << 61) - 1);
  const at::Tensor words = philox_words(blocks, grid);
  const at::Tensor bits = at::stack({words.bitwise_and(0xffff), words.bitwise_right_shift(16)}, -1)
                              .view({tokens, kOfBlock * eight.numel()})
                              .slice(1, skipped, skipped + channels);
  return bits.ge(static_cast<std::int64_t>(grid.draw.threshold)).to(options.dtype()).mul_(grid.draw.factor);
}

at::Tensor apply_dropout(const DropoutGrid& grid, const at::Tensor& x) {
  const at::ScalarType dtype = kernels::compute_dtype(x);
  if (device::has_kernels(x.device())) {
    const at::Tensor dense = x.contiguous();
    if (device::serves_dropout(dense)) return device::dropout_add(&grid, dense, {});
  }
  if (!x.is_cpu()) {
    const std::int64_t channels = x.size(-1);
    const std::int64_t tokens = x.numel() / std::max<std::int64_t>(channels, 1);
    const at::Tensor factors = plain_dropout_factors(grid, tokens, channels, x.options().dtype(dtype));
    return x.mul(factors.view(x.sizes())).to(x.scalar_type());
  }
  const at::Tensor values = x.to(dtype).contiguous();
  at::Tensor y = at::empty(values.sizes(), values.options());
  kernels::with_element(values, [&](auto element) { scale_rows<decltype(element)>(grid, y, values); });
  return y.to(x.scalar_type());
}

at::Tensor dropout_sum(const DropoutGrid& grid, const at::Tensor& x, const at::Tensor& residual) {
  if (device::has_kernels(x.device())) {
    const at::Tensor dense = x.contiguous();
    if (device::serves_dropout(dense)) return device::dropout_add(&grid, dense, residual.contiguous());
  }
  return residual + apply_dropout(grid, x);
}

}  // namespace orthant::nn
