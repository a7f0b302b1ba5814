// Activations on a CUDA device: see activation.cu.
#include <ATen/ATen.h>

#include "orthant/nn/activation.h"
#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"

namespace orthant::cuda::sources {
extern const std::string_view activation;
}

namespace orthant::nn::device {
namespace {

const cuda::Source kActivation{"nn/activation.cu", cuda::sources::activation, {"ELEMENT", "ALIGNED"}};

std::int64_t num_vectors(const at::Tensor& x, std::int64_t width) {
  return x.size(0) * ((width + lane(x) - 1) / lane(x));
}

}  // namespace

bool serves_activation(ActivationKind kind, const at::Tensor& x) {
  return kind == ActivationKind::swiglu && serves(x);
}

at::Tensor activate(ActivationKind kind, const at::Tensor& x) {
  const std::int64_t width = activation_width(kind, x.size(1));
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  if (out.numel() == 0) return out;
  const std::int64_t vectors = num_vectors(x, width);
  const int is_aligned = aligned(width, {x, out}) ? 1 : 0;
  cuda::kernel(kActivation, "swiglu", {element(x), is_aligned})(threads_for(vectors, x), data(out), data(x), vectors,
                                                                static_cast<int>(width));
  return out;
}

ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                       bool wants_activation) {
  const std::int64_t width = activation_width(kind, x.size(1));
  const at::Tensor d_x = at::empty(x.sizes(), x.options());
  if (d_x.numel() > 0) {
    const std::int64_t vectors = num_vectors(x, width);
    const int is_aligned = aligned(width, {x, d_activation, d_x}) ? 1 : 0;
    cuda::kernel(kActivation, "swiglu_gradient", {element(x), is_aligned})(
        threads_for(vectors, x), data(d_x), data(d_activation), data(x), vectors, static_cast<int>(width),
        wants_activation ? 1 : 0);
  }
  return {d_x, wants_activation ? d_activation : at::Tensor()};
}

Variants activation_variants(at::ScalarType dtype) {
  return {{&kActivation, {element(dtype), /*ALIGNED=*/1}}};
}

}  // namespace orthant::nn::device
