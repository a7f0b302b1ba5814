// RMSNorm on a CUDA device: see norm.cu.
#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/norm/norm_formulas.h"
#include "orthant/ops/norm/row_shape.h"

namespace orthant::cuda::sources {
extern const std::string_view norm;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kNorm{"ops/norm/norm.cu", cuda::sources::norm, {"ELEMENT", "ALIGNED", "VECTORS", "WARPS", "PARTS"}};

constexpr std::int64_t kMostWarps = 32;
constexpr std::int64_t kMostBlocks = 896;  // of a backward: what a large card runs at a time

// Backward keeps two tensors and the columns' sums, so it holds fewer.
constexpr std::int64_t kForwardVectors = 8;
constexpr std::int64_t kBackwardVectors = 2;
constexpr int kAllParts = 3;

// Of the longest row that registers hold.
constexpr std::int64_t most_columns(std::int64_t lane) {
  return kMostWarps * 32 * kBackwardVectors * lane;
}

}  // namespace

bool serves_rms_norm(const at::Tensor& x) {
  return serves(x) && x.size(1) > 0 && x.size(1) <= most_columns(lane(x)) && x.size(0) < (std::int64_t{1} << 31);
}

Normalized rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  Normalized out = {at::empty(x.sizes(), x.options()), at::empty({x.size(0), 1}, x.options().dtype(at::kFloat))};
  if (x.size(0) == 0) return out;
  const RowShape row = row_shape(x.size(1), lane(x), kForwardVectors);
  const int is_aligned = aligned(x.size(1), {x, weight, out.y}) ? 1 : 0;
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>((x.size(0) + row.rows() - 1) / row.rows()),
                                .threads = static_cast<std::uint32_t>(row.threads()),
                                .stream = stream(x)};
  cuda::kernel(kNorm, "rms_forward", {element(x), is_aligned, row.vectors, row.warps, kAllParts})(
      shape, data(out.y), data(out.statistics), data(x), data(weight), static_cast<int>(x.size(0)),
      static_cast<int>(x.size(1)), static_cast<float>(eps));
  return out;
}

NormGradients rms_norm_backward(const at::Tensor& gy, const NormInput& input, NormParts parts,
                                const at::Tensor& residual) {
  const std::int64_t rows = gy.size(0), width = gy.size(1);
  const RowShape row = row_shape(width, lane(gy), kBackwardVectors);
  const std::int64_t blocks = row_blocks(rows, row.rows(), kMostBlocks);
  NormGradients out;
  if (parts.input) out.x = at::empty(gy.sizes(), gy.options());
  if (parts.weights) out.weight = at::empty({blocks, width}, gy.options().dtype(at::kFloat));
  if (rows > 0) {
    const int is_aligned = aligned(width, {gy, input.x, input.weight, residual, out.x}) ? 1 : 0;
    const int wanted = (parts.input ? 1 : 0) + (parts.weights ? 2 : 0);
    const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(blocks),
                                  .threads = static_cast<std::uint32_t>(row.threads()),
                                  .stream = stream(gy)};
    cuda::kernel(kNorm, "rms_backward", {element(gy), is_aligned, row.vectors, row.warps, wanted})(
        shape, data(out.x), data(out.weight), data(gy), data(input.x), data(input.statistics), data(input.weight),
        data(residual), static_cast<int>(rows), static_cast<int>(width));
  }
  return out;
}

Variants norm_variants(at::ScalarType dtype, std::int64_t width) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(c10::elementSize(dtype));
  if (width < 1 || width > most_columns(vector)) return {};
  const RowShape forward = row_shape(width, vector, kForwardVectors);
  const RowShape backward = row_shape(width, vector, kBackwardVectors);
  return {{&kNorm, {element(dtype), 1, forward.vectors, forward.warps, kAllParts}},
          {&kNorm, {element(dtype), 1, backward.vectors, backward.warps, kAllParts}}};
}

}  // namespace orthant::nn::device
