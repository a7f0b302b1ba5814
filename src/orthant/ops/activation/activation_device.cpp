// Activations on a CUDA device: see activation.cu for swiglu, pointwise.cu for the others.
#include <ATen/ATen.h>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/device_variants.h"
#include "orthant/ops/activation/activation.h"
#include "orthant/ops/dropout/dropout_device.h"

namespace orthant::cuda::sources {
extern const std::string_view activation;
extern const std::string_view pointwise;
}  // namespace orthant::cuda::sources

namespace orthant::nn::device {
namespace {

const cuda::Source kActivation{"ops/activation/activation.cu", cuda::sources::activation, {"ELEMENT", "ALIGNED"}};
const cuda::Source kPointwise{
    "ops/activation/pointwise.cu", cuda::sources::pointwise, {"ELEMENT", "ALIGNED", "UNPADDED"}};

struct KernelNames {
  const char* forward;
  const char* dropped;
  const char* backward;
};

KernelNames pointwise_names(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::gelu:
      return {"gelu", "gelu_dropout", "gelu_gradient"};
    case ActivationKind::gelu_tanh:
      return {"gelu_tanh", "gelu_tanh_dropout", "gelu_tanh_gradient"};
    case ActivationKind::relu:
      return {"relu", "relu_dropout", "relu_gradient"};
    default:
      return {"silu", "silu_dropout", "silu_gradient"};
  }
}

void swiglu(const at::Tensor& out, const at::Tensor& x) {
  const std::int64_t width = out.size(1), vectors = num_vectors(out, width);
  cuda::kernel(kActivation, "swiglu", {element(x), aligned(width, {x, out}) ? 1 : 0})(
      threads_for(vectors, x), data(out), data(x), vectors, static_cast<int>(width));
}

void swiglu_gradient(const at::Tensor& d_x, const at::Tensor& d, const at::Tensor& x, bool wants) {
  const std::int64_t width = d.size(1), vectors = num_vectors(d, width);
  cuda::kernel(kActivation, "swiglu_gradient", {element(x), aligned(width, {x, d, d_x}) ? 1 : 0})(
      threads_for(vectors, x), data(d_x), data(d), data(x), vectors, static_cast<int>(width), wants ? 1 : 0);
}

}  // namespace

bool serves_activation(ActivationKind kind, const at::Tensor& x) {
  return serves(x) && (kind == ActivationKind::swiglu || counts_vectors(x, x.size(1)));
}

at::Tensor activate(ActivationKind kind, const at::Tensor& x, const DropoutGrid* grid) {
  const std::int64_t width = activation_width(kind, x.size(1));
  at::Tensor out = at::empty({x.size(0), width}, x.options());
  if (out.numel() == 0) return out;
  if (kind == ActivationKind::swiglu) {
    swiglu(out, x);
    return grid == nullptr ? out : apply_dropout(*grid, out);
  }
  const KernelVectors vectors(x, width);
  const KernelNames names = pointwise_names(kind);
  const int is_aligned = aligned(width, {x, out}) && aligned(grid) ? 1 : 0;
  const auto& kernel = cuda::kernel(kPointwise, grid == nullptr ? names.forward : names.dropped,
                                    {element(x), is_aligned, unpadded(grid)});
  const cuda::LaunchShape shape = threads_for(vectors.pairs, x);
  if (grid == nullptr) {
    kernel(shape, data(out), data(x), vectors);
  } else {
    kernel(shape, data(out), data(x), vectors, keyed_grid(grid, x.size(0)));
  }
  return out;
}

ActivationGradient activation_gradient(ActivationKind kind, const at::Tensor& x, const at::Tensor& d_activation,
                                       bool wants_activation, const DropoutGrid* grid) {
  const at::Tensor d_x = at::empty(x.sizes(), x.options());
  if (kind == ActivationKind::swiglu) {
    const at::Tensor d = grid == nullptr ? d_activation : apply_dropout(*grid, d_activation);
    if (d_x.numel() > 0) swiglu_gradient(d_x, d, x, wants_activation);
    if (!wants_activation) return {d_x, at::Tensor()};
    return {d_x, grid == nullptr ? d : apply_dropout(*grid, d)};
  }
  if (d_x.numel() > 0) {
    const std::int64_t width = x.size(1);
    const KernelVectors vectors(x, width);
    const int is_aligned = aligned(width, {x, d_activation, d_x}) && aligned(grid) ? 1 : 0;
    cuda::kernel(kPointwise, pointwise_names(kind).backward, {element(x), is_aligned, unpadded(grid)})(
        threads_for(vectors.pairs, x), data(d_x), data(d_activation), data(x), vectors, wants_activation ? 1 : 0,
        keyed_grid(grid, x.size(0)));
  }
  return {d_x, wants_activation ? d_activation : at::Tensor()};
}

Variants activation_variants(at::ScalarType dtype) {
  return {{&kActivation, {element(dtype), /*ALIGNED=*/1}},
          {&kPointwise, {element(dtype), /*ALIGNED=*/1, /*UNPADDED=*/0}}};
}

}  // namespace orthant::nn::device
