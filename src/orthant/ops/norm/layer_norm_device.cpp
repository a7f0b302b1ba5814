// LayerNorm on a CUDA device: see layer_norm.cu.
#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/dropout/dropout_device.h"
#include "orthant/ops/norm/norm_formulas.h"
#include "orthant/ops/norm/row_shape.h"

namespace orthant::cuda::sources {
extern const std::string_view layer_norm;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kLayerNorm{"ops/norm/layer_norm.cu",
                              cuda::sources::layer_norm,
                              {"ELEMENT", "ALIGNED", "VECTORS", "WARPS", "PARTS", "UNPADDED"}};

constexpr std::int64_t kRowVectors = 4;
constexpr std::int64_t kWidestRow = 16;  // warps
constexpr int kInput = 1, kWeights = 2, kDropped = 4;

RowShape layer_shape(std::int64_t width, std::int64_t lane) {
  return row_shape(width, lane, kRowVectors);
}

// Blocks of a backward, at most: those that 132 SMs take at a time (see BLOCKS in layer_norm.cu).
std::int64_t layer_blocks(const RowShape& row) {
  return 132 * (row.vectors <= 3 ? 4 : 3);
}

// `sum` is written where there is a residual.
Normalized layer_forward(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& residual,
                         const DropoutGrid* grid, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  Normalized out = {at::empty(x.sizes(), x.options()), at::empty({x.size(0), 2}, x.options().dtype(at::kFloat))};
  if (x.size(0) == 0) return out;
  const RowShape row = layer_shape(x.size(1), lane(x));
  const int is_aligned = aligned(x.size(1), {x, residual, sum, weight, bias, out.y}) && aligned(grid) ? 1 : 0;
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>((x.size(0) + row.rows() - 1) / row.rows()),
                                .threads = static_cast<std::uint32_t>(row.threads()),
                                .stream = stream(x)};
  cuda::kernel(kLayerNorm, "layer_forward",
               {element(x), is_aligned, row.vectors, row.warps, kInput | kWeights, unpadded(grid)})(
      shape, data(out.y), data(out.statistics), data(sum), data(x), data(residual), data(weight), data(bias),
      static_cast<int>(x.size(0)), static_cast<int>(x.size(1)), static_cast<float>(eps), keyed_grid(grid, x.size(0)));
  return out;
}

}  // namespace

bool serves_layer_norm(const at::Tensor& x) {
  return serves(x) && x.size(1) > 0 && x.size(1) <= kWidestRow * 32 * kRowVectors * lane(x) &&
         x.size(0) < (std::int64_t{1} << 31);
}

Normalized layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return layer_forward({}, x, {}, nullptr, weight, bias, eps);
}

Normalized dropout_add_norm(const at::Tensor& sum, const at::Tensor& x, const at::Tensor& residual,
                            const DropoutGrid* grid, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return layer_forward(sum, x, residual, grid, weight, bias, eps);
}

NormGradients layer_norm_backward(const at::Tensor& gy, const NormInput& input, NormParts parts,
                                  const DropoutGrid* grid, const at::Tensor& residual) {
  const std::int64_t rows = gy.size(0), width = gy.size(1);
  const RowShape row = layer_shape(width, lane(gy));
  const std::int64_t blocks = row_blocks(rows, row.rows(), layer_blocks(row));
  const bool drops = parts.input && grid != nullptr;
  NormGradients out;
  if (parts.input) out.x = at::empty(gy.sizes(), gy.options());
  if (drops) out.dropped = at::empty(gy.sizes(), gy.options());
  at::Tensor sums;
  if (parts.weights) {
    sums = at::empty({2, blocks, width}, gy.options().dtype(at::kFloat));
    out.weight = sums.select(0, 0);
    out.bias = sums.select(0, 1);
  }
  if (rows == 0) return out;
  const bool borders = aligned(width, {gy, input.x, input.weight, residual, out.x, out.dropped});
  const int is_aligned = borders && (!drops || aligned(grid)) ? 1 : 0;
  const int wanted = (parts.input ? kInput : 0) | (parts.weights ? kWeights : 0) | (drops ? kDropped : 0);
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(blocks),
                                .threads = static_cast<std::uint32_t>(row.threads()),
                                .stream = stream(gy)};
  cuda::kernel(kLayerNorm, "layer_backward",
               {element(gy), is_aligned, row.vectors, row.warps, wanted, drops ? unpadded(grid) : 0})(
      shape, data(out.x), data(out.dropped), data(sums), data(gy), data(input.x), data(input.statistics),
      data(input.weight), data(residual), static_cast<int>(rows), static_cast<int>(width), keyed_grid(grid, rows));
  return out;
}

Variants layer_norm_variants(at::ScalarType dtype, std::int64_t width) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(c10::elementSize(dtype));
  if (width < 1 || width > kWidestRow * 32 * kRowVectors * vector) return {};
  const RowShape row = layer_shape(width, vector);
  Variants all;
  for (const int parts : {kInput | kWeights, kInput | kWeights | kDropped}) {
    all.push_back({&kLayerNorm, {element(dtype), 1, row.vectors, row.warps, parts, /*UNPADDED=*/0}});
  }
  return all;
}

}  // namespace orthant::nn::device
