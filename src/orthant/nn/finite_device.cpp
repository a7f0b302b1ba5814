#include "orthant/nn/finite_device.h"

#include <algorithm>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"

namespace orthant::cuda::sources {
extern const std::string_view finite;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kFinite{"nn/finite.cu", cuda::sources::finite, {"ELEMENT"}};
constexpr std::int64_t kFiniteThreads = 256;
constexpr std::int64_t kFiniteBlocks = 1056;  // that go through a large tensor together
constexpr std::int64_t kVectorsOfThread = 4;

}  // namespace

void find_not_finite(const at::Tensor& found, const at::Tensor& x) {
  if (x.numel() == 0) return;
  const std::int64_t elements = kFiniteThreads * kVectorsOfThread * lane(x);
  const std::int64_t blocks = std::min((x.numel() + elements - 1) / elements, kFiniteBlocks);
  const cuda::LaunchShape shape{.blocks = static_cast<std::uint32_t>(blocks),
                                .threads = static_cast<std::uint32_t>(kFiniteThreads),
                                .stream = stream(x)};
  cuda::kernel(kFinite, "find_not_finite", {element(x)})(shape, data(found), data(x), x.numel());
}

Variants finite_variants(at::ScalarType dtype) {
  return {{&kFinite, {element(dtype)}}};
}

}  // namespace orthant::nn::device
