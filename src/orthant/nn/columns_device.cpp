// Sums over rows on a CUDA device: see columns.cu.
#include <ATen/ATen.h>

#include "orthant/nn/columns.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"

namespace orthant::cuda::sources {
extern const std::string_view columns;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kColumns{"nn/columns.cu", cuda::sources::columns, {"ELEMENT"}};
constexpr std::int64_t kColumnsOfBlock = 32;
constexpr std::int64_t kMostRows = 4096;  // more have work for more blocks than the columns give

}  // namespace

bool serves_columns(const at::Tensor& x) {
  return serves(x) && x.size(0) <= kMostRows;
}

at::Tensor sum_columns(const at::Tensor& x) {
  at::Tensor out = at::empty({x.size(1)}, x.options().dtype(at::kFloat));
  if (x.size(1) == 0) return out;
  const cuda::LaunchShape shape{
      .blocks = static_cast<std::uint32_t>((x.size(1) + kColumnsOfBlock - 1) / kColumnsOfBlock),
      .threads = 1024,
      .stream = stream(x)};
  cuda::kernel(kColumns, "sum_columns", {element(x)})(shape, data(out), data(x), static_cast<int>(x.size(0)),
                                                      static_cast<int>(x.size(1)));
  return out;
}

Variants columns_variants() {
  return {{&kColumns, {element(at::kFloat)}}};  // of partial sums
}

}  // namespace orthant::nn::device
