// RMSNorm on a CUDA device: see norm.cu.
#include <ATen/ATen.h>

#include <bit>
#include <cmath>

#include "orthant/nn/columns.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/nn/norm_formulas.h"

namespace orthant::cuda::sources {
extern const std::string_view norm;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kNorm{"nn/norm.cu", cuda::sources::norm, {"ELEMENT", "ALIGNED", "VECTORS", "WARPS", "PARTS"}};

constexpr std::int64_t kMostWarps = 32;
constexpr std::int64_t kMostBlocks = 896;  // of a backward: what a large card runs at a time

// How a row lies in registers: warps that share it, vectors that a lane of them holds.
struct RowShape {
  int vectors = 1;
  int warps = 1;

  // Backward keeps two tensors and the columns' sums, so it holds fewer.
  RowShape(std::int64_t width, std::int64_t lane, std::int64_t most_vectors) {
    const auto needed = static_cast<std::uint64_t>((width + 32 * lane - 1) / (32 * lane));
    vectors =
        static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(needed), static_cast<std::uint64_t>(most_vectors)));
    warps = static_cast<int>(
        std::bit_ceil((needed + static_cast<std::uint64_t>(vectors) - 1) / static_cast<std::uint64_t>(vectors)));
  }
  int threads() const { return warps > 4 ? 32 * warps : 128; }
  int rows() const { return threads() / (32 * warps); }
};

constexpr std::int64_t kForwardVectors = 8;
constexpr std::int64_t kBackwardVectors = 2;
constexpr int kAllParts = 3;

// Of the longest row that registers hold.
constexpr std::int64_t most_columns(std::int64_t lane) {
  return kMostWarps * 32 * kBackwardVectors * lane;
}

}  // namespace

bool serves_norm(Norm kind, const at::Tensor& x) {
  return kind == Norm::rms && serves(x) && x.size(1) > 0 && x.size(1) <= most_columns(lane(x)) &&
         x.size(0) < (std::int64_t{1} << 31);
}

Normalized rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  Normalized out = {at::empty(x.sizes(), x.options()), at::empty({x.size(0), 1}, x.options().dtype(at::kFloat))};
  if (x.size(0) == 0) return out;
  const RowShape row(x.size(1), lane(x), kForwardVectors);
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
  const RowShape row(width, lane(gy), kBackwardVectors);
  // Neighbouring rows to a block, as many as `rows` alone says.
  std::int64_t rows_per_block = (rows + kMostBlocks - 1) / kMostBlocks;
  rows_per_block = (rows_per_block + row.rows() - 1) / row.rows() * row.rows();
  const std::int64_t blocks = rows == 0 ? 0 : (rows + rows_per_block - 1) / rows_per_block;
  NormGradients out;
  if (parts.input) out.x = at::empty(gy.sizes(), gy.options());
  const at::Tensor sums = parts.weights ? at::empty({blocks, width}, gy.options().dtype(at::kFloat)) : at::Tensor();
  if (rows > 0) {
    const int is_aligned = aligned(width, {gy, input.x, input.weight, residual, out.x}) ? 1 : 0;
    const int wanted = (parts.input ? 1 : 0) + (parts.weights ? 2 : 0);
    const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(blocks),
                                  .threads = static_cast<std::uint32_t>(row.threads()),
                                  .stream = stream(gy)};
    cuda::kernel(kNorm, "rms_backward", {element(gy), is_aligned, row.vectors, row.warps, wanted})(
        shape, data(out.x), data(sums), data(gy), data(input.x), data(input.statistics), data(input.weight),
        data(residual), static_cast<int>(rows), static_cast<int>(width), static_cast<int>(rows_per_block));
  }
  if (parts.weights) out.weight = nn::sum_columns(sums);
  return out;
}

Variants norm_variants(at::ScalarType dtype, std::int64_t width) {
  const std::int64_t vector = 16 / static_cast<std::int64_t>(c10::elementSize(dtype));
  if (width < 1 || width > most_columns(vector)) return {};
  const RowShape forward(width, vector, kForwardVectors), backward(width, vector, kBackwardVectors);
  return {{&kNorm, {element(dtype), 1, forward.vectors, forward.warps, kAllParts}},
          {&kNorm, {element(dtype), 1, backward.vectors, backward.warps, kAllParts}}};
}

}  // namespace orthant::nn::device
