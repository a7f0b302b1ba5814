#include "orthant/ops/dropout/dropout_device.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"
#include "orthant/nn/device_variants.h"

namespace orthant::cuda::sources {
extern const std::string_view dropout;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kDropout{"ops/dropout/dropout.cu", cuda::sources::dropout, {"ELEMENT", "ALIGNED", "UNPADDED"}};
constexpr std::array<std::uint32_t, 2> kRoundSteps = {0x9E3779B9, 0xBB67AE85};  // of Philox's keys: base/philox.h

}  // namespace

KernelGrid kernel_grid(const DropoutGrid* grid, std::int64_t tokens) {
  KernelGrid out;
  if (grid == nullptr) return out;
  if (grid->first_token + static_cast<std::uint64_t>(tokens) >= std::uint64_t{1} << 31) {
    throw InternalError(
        fmt::format("dropout of {} tokens from {} on: kernels count 2^31 at most", tokens, grid->first_token));
  }
  out.stream = grid->draw.stream;
  if (grid->stream.defined())
    out.stream_at = reinterpret_cast<const std::uint64_t*>(grid->stream.const_data_ptr<std::int64_t>());
  out.first_row = grid->first_row;
  out.key[0] = grid->draw.key[0];
  out.key[1] = grid->draw.key[1];
  out.threshold = grid->draw.threshold;
  out.factor = static_cast<float>(grid->draw.factor);
  out.positions = static_cast<std::uint32_t>(grid->positions);
  out.by_positions = KernelDivisor(out.positions);
  out.first_token = static_cast<std::uint32_t>(grid->first_token);
  out.first_position = static_cast<std::uint32_t>(grid->first_position);
  out.first_channel = static_cast<std::uint32_t>(grid->first_channel);
  out.second_piece = static_cast<std::uint32_t>(grid->second_piece);
  out.jump = static_cast<std::uint32_t>(grid->jump);
  return out;
}

KernelKeyedGrid keyed_grid(const DropoutGrid* grid, std::int64_t tokens) {
  KernelKeyedGrid out{kernel_grid(grid, tokens)};
  for (std::uint32_t i = 0; i < std::size(out.round_keys); ++i) {
    out.round_keys[i] = out.grid.key[i % 2] + i / 2 * kRoundSteps[i % 2];
  }
  if (grid != nullptr && grid->token_rows != nullptr) {
    out.grid.positions = static_cast<std::uint32_t>(grid->token_rows->row.numel());
    out.token_rows = grid->token_rows->row.const_data_ptr<std::int64_t>();
    out.token_positions = grid->token_rows->position.const_data_ptr<std::int64_t>();
  }
  return out;
}

bool aligned(const DropoutGrid* grid) {
  constexpr std::uint64_t kOfBlock = 8;
  return grid == nullptr || grid->first_channel % kOfBlock == 0;
}

int unpadded(const DropoutGrid* grid) {
  return grid != nullptr && grid->token_rows != nullptr ? 1 : 0;
}

bool serves_dropout(const at::Tensor& x) {
  return x.dim() > 0 && serves(x) && counts_vectors(x, x.size(-1));
}

at::Tensor dropout_add(const DropoutGrid* grid, const at::Tensor& x, const at::Tensor& residual) {
  at::Tensor out = at::empty(x.sizes(), x.options());
  if (x.numel() == 0) return out;
  const std::int64_t width = x.size(-1), tokens = x.numel() / width;
  const KernelVectors vectors(x, width);
  const int is_aligned = aligned(width, {x, residual, out}) && aligned(grid) ? 1 : 0;
  cuda::kernel(kDropout, "dropout_add", {element(x), is_aligned, unpadded(grid)})(
      threads_for(vectors.pairs, x), data(out), data(x), data(residual), vectors, keyed_grid(grid, tokens));
  return out;
}

Variants dropout_variants(at::ScalarType dtype) {
  return {{&kDropout, {element(dtype), /*ALIGNED=*/1, /*UNPADDED=*/0}}};
}

}  // namespace orthant::nn::device
