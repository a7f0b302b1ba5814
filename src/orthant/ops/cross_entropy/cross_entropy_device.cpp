// Cross entropy on a CUDA device: see cross_entropy.cu.
#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/cross_entropy/cross_entropy.h"

namespace orthant::cuda::sources {
extern const std::string_view cross_entropy;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kCrossEntropy{"ops/cross_entropy/cross_entropy.cu", cuda::sources::cross_entropy, {"ELEMENT"}};
constexpr std::uint32_t kRowThreads = 512;

cuda::LaunchShape block_per_row(const at::Tensor& logits) {
  return {.blocks = static_cast<std::uint32_t>(logits.size(0)), .threads = kRowThreads, .stream = stream(logits)};
}

}  // namespace

bool serves_logits(const at::Tensor& logits) {
  return serves_rows(logits) && logits.size(0) < (std::int64_t{1} << 31) && logits.size(1) < (std::int64_t{1} << 31);
}

ClassNumbers class_numbers(const at::Tensor& logits, const at::Tensor& targets, std::int64_t first_class) {
  ClassNumbers out;
  out.lse = at::empty({logits.size(0)}, logits.options().dtype(at::kFloat));
  out.chosen = at::empty_like(out.lse);
  if (logits.size(0) == 0) return out;
  cuda::kernel(kCrossEntropy, "log_sum_exp", {element(logits)})(block_per_row(logits), data(out.lse), data(out.chosen),
                                                                data(logits), data(targets), logits.stride(0),
                                                                static_cast<int>(logits.size(1)), first_class);
  return out;
}

void class_gradients(const at::Tensor& out, const at::Tensor& logits, const at::Tensor& targets,
                     std::int64_t first_class, const at::Tensor& lse, const at::Tensor& weights,
                     const at::Tensor& d_loss) {
  if (logits.numel() == 0) return;
  // The kernel takes vectors of both from one border on.
  const auto border = [](const at::Tensor& x) { return reinterpret_cast<std::uintptr_t>(x.const_data_ptr()) % 16; };
  const bool alike = border(logits) == border(out) && logits.stride(0) == out.stride(0);
  const at::Tensor from = alike ? logits : out.copy_(logits);
  cuda::kernel(kCrossEntropy, "gradient", {element(logits)})(
      block_per_row(logits), data(out), data(from), data(targets), data(lse), data(weights), data(d_loss),
      out.stride(0), static_cast<int>(logits.size(1)), first_class);
}

Variants cross_entropy_variants(at::ScalarType dtype) {
  return {{&kCrossEntropy, {element(dtype)}}};
}

}  // namespace orthant::nn::device
