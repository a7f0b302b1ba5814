#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/experts/expert_rows.h"

namespace orthant::cuda::sources {
extern const std::string_view expert_rows;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kExpertRows{"ops/experts/expert_rows.cu", cuda::sources::expert_rows, {"ELEMENT"}};
constexpr std::int64_t kWarp = 32;  // threads of a row

const cuda::Kernel& rows_kernel(const char* name, const at::Tensor& x) {
  return cuda::kernel(kExpertRows, name, {element(x)});
}

cuda::LaunchShape a_warp_for(std::int64_t rows, const at::Tensor& x) {
  return threads_for(rows * kWarp, x);
}

}  // namespace

bool serves_expert_rows(const at::Tensor& rows) {
  constexpr std::int64_t kMost = std::int64_t{1} << 31;
  return rows.dim() == 2 && serves(rows) && aligned(rows.size(1), {rows}) && rows.size(0) < kMost &&
         rows.size(1) < kMost;
}

at::Tensor rows_of_tokens(const at::Tensor& x, const at::Tensor& slots, std::int64_t per_token) {
  const std::int64_t rows = slots.size(0);
  at::Tensor out = at::empty({rows, x.size(1)}, x.options());
  if (out.numel() == 0) return out;
  rows_kernel("expert_rows", x)(a_warp_for(rows, x), data(out), data(x), data<std::int64_t>(slots), rows,
                                static_cast<int>(x.size(1)), KernelDivisor(static_cast<std::uint32_t>(per_token)));
  return out;
}

at::Tensor sums_of_rows(const at::Tensor& rows, const at::Tensor& places) {
  const std::int64_t tokens = places.size(0);
  at::Tensor out = at::empty({tokens, rows.size(1)}, rows.options());
  if (out.numel() == 0) return out;
  rows_kernel("expert_sums", rows)(a_warp_for(tokens, rows), data(out), data(rows), data<std::int64_t>(places), tokens,
                                   static_cast<int>(rows.size(1)), static_cast<int>(places.size(1)));
  return out;
}

bool serves_expert_activation(const at::Tensor& gates, const at::Tensor& weights) {
  return serves_expert_rows(gates) && gates.size(1) / 2 % lane(gates) == 0 && weights.is_contiguous() &&
         weights.scalar_type() == at::kFloat;
}

at::Tensor expert_activation(const at::Tensor& gates, const at::Tensor& weights) {
  const std::int64_t rows = gates.size(0), width = gates.size(1) / 2;
  at::Tensor out = at::empty({rows, width}, gates.options());
  if (out.numel() == 0) return out;
  rows_kernel("expert_activation", gates)(a_warp_for(rows, gates), data(out), data(gates), data<float>(weights), rows,
                                          static_cast<int>(width));
  return out;
}

ExpertActivationGradient expert_activation_gradient(const at::Tensor& gy, const at::Tensor& gates,
                                                    const at::Tensor& weights, bool wants_weights,
                                                    const at::Tensor& again) {
  const std::int64_t rows = gates.size(0), width = gates.size(1) / 2;
  ExpertActivationGradient made{at::empty_like(gates), wants_weights ? at::empty_like(weights) : at::Tensor()};
  if (gates.numel() == 0) return made;
  rows_kernel("expert_activation_gradient", gates)(a_warp_for(rows, gates), data(made.gates), data<float>(made.weights),
                                                   data(again), data(gy), data(gates), data<float>(weights), rows,
                                                   static_cast<int>(width));
  return made;
}

Variants expert_rows_variants(at::ScalarType dtype) {
  return {{&kExpertRows, {element(dtype)}}};
}

}  // namespace orthant::nn::device
