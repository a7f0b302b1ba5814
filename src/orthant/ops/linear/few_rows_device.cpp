#include "orthant/ops/linear/few_rows_device.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/nn/device_kernels.h"

namespace orthant::cuda::sources {
extern const std::string_view few_rows;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kFewRows{
    "ops/linear/few_rows.cu", cuda::sources::few_rows, {"ELEMENT", "EIGHTS", "TILES", "NORMS", "GATED"}};

constexpr std::int64_t kTileOutputs = 16;
constexpr std::int64_t kDepthStep = 32;
constexpr std::uint32_t kThreads = 256;
// From so many outputs on blocks take two tiles: fewer blocks read the rows, and still there are several for each
// multiprocessor.
constexpr std::int64_t kManyOutputs = 8192;

// As few_rows.cu has it.
struct FewRowsArguments {
  void* y;
  const void* x;
  const void* weight;
  const void* bias;
  const void* added;
  const void* norm_weight;
  std::int64_t x_stride, weight_stride, added_stride, y_stride;
  int rows, depth, outputs;
  float eps;
};

bool narrow(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
}

// Rows that begin at multiples of 16 bytes.
bool lies_well(const at::Tensor& x) {
  return serves_rows(x) && x.stride(0) % lane(x) == 0 && aligned(lane(x), {x});
}

int eights(std::int64_t rows) {
  return static_cast<int>((rows + 7) / 8);
}

int tiles(std::int64_t outputs, bool gated) {
  return gated || outputs >= kManyOutputs ? 2 : 1;
}

}  // namespace

bool serves_few_rows(const FewRowsProduct& product) {
  const auto& [x, weight, bias, added, norm_weight, eps, gated] = product;
  const auto alike = [&](const at::Tensor& other) {
    return !other.defined() || other.scalar_type() == x.scalar_type();
  };
  return x.dim() == 2 && narrow(x) && alike(weight) && alike(bias) && alike(added) && alike(norm_weight) &&
         x.size(0) > 0 && x.size(0) <= kMostFewRows && x.size(1) > 0 && x.size(1) % kDepthStep == 0 && lies_well(x) &&
         lies_well(weight) && (!bias.defined() || bias.is_contiguous()) && (!added.defined() || serves_rows(added)) &&
         (!norm_weight.defined() ||
          (x.scalar_type() == at::kBFloat16 && norm_weight.is_contiguous() && aligned(lane(x), {norm_weight})));
}

at::Tensor few_rows(const FewRowsProduct& product) {
  const at::Tensor& x = product.x;
  const std::int64_t rows = x.size(0), outputs = product.weight.size(0) / (product.gated ? 2 : 1);
  const at::Tensor y = at::empty({rows, outputs}, x.options());
  if (outputs == 0) return y;
  const int of_block = tiles(outputs, product.gated);
  const auto width = kTileOutputs * (product.gated ? 1 : of_block);
  const FewRowsArguments arguments{.y = data(y),
                                   .x = data(x),
                                   .weight = data(product.weight),
                                   .bias = data(product.bias),
                                   .added = data(product.added),
                                   .norm_weight = data(product.norm_weight),
                                   .x_stride = x.stride(0),
                                   .weight_stride = product.weight.stride(0),
                                   .added_stride = product.added.defined() ? product.added.stride(0) : 0,
                                   .y_stride = outputs,
                                   .rows = static_cast<int>(rows),
                                   .depth = static_cast<int>(x.size(1)),
                                   .outputs = static_cast<int>(outputs),
                                   .eps = static_cast<float>(product.eps)};
  cuda::kernel(kFewRows, "few_rows",
               {element(x), eights(rows), of_block, product.norm_weight.defined() ? 1 : 0, product.gated ? 1 : 0})(
      {.blocks = static_cast<std::uint32_t>((outputs + width - 1) / width),
       .threads = kThreads,
       .stream = stream(x),
       .early = true},
      arguments);
  return y;
}

Variants few_rows_variants(at::ScalarType dtype, std::int64_t most_rows) {
  if (dtype != at::kBFloat16 && dtype != at::kHalf) return {};
  const bool norms = dtype == at::kBFloat16;
  Variants all;
  for (int e = 1; e <= eights(std::min(most_rows, kMostFewRows)); ++e) {
    for (const int of_block : {1, 2}) {
      all.push_back({&kFewRows, {element(dtype), e, of_block, 0, 0}});
      if (norms) all.push_back({&kFewRows, {element(dtype), e, of_block, 1, 0}});
    }
    all.push_back({&kFewRows, {element(dtype), e, 2, norms ? 1 : 0, 1}});
  }
  return all;
}

}  // namespace orthant::nn::device
