#include "orthant/ops/linear/product_library.h"

#include <ATen/Context.h>

#include <algorithm>
#include <bit>

namespace orthant::nn {
namespace {

constexpr std::uintptr_t kMostAlignment = 16;  // of the widest access of a thread

std::optional<cuda::Element> element_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return cuda::Element::bfloat16;
    case at::kHalf:
      return cuda::Element::float16;
    case at::kFloat:
      return cuda::Element::float32;
    default:
      return std::nullopt;
  }
}

// How a matrix lies in memory.
struct Lie {
  bool turned = false;
  std::int64_t stride = 0;
};

std::optional<Lie> lie_of(const at::Tensor& matrix) {
  if (matrix.dim() != 2 || matrix.numel() == 0) return std::nullopt;
  if (matrix.stride(1) == 1 && matrix.stride(0) >= matrix.size(1)) return Lie{false, matrix.stride(0)};
  if (matrix.stride(0) == 1 && matrix.stride(1) >= matrix.size(0)) return Lie{true, matrix.stride(1)};
  return std::nullopt;
}

bool same_form(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

std::optional<cuda::Product> product_of(const ProductOperands& operands) {
  const auto& [out, left, right, added, bias] = operands;
  const auto in_type = element_of(left.scalar_type());
  const auto out_type = element_of(out.scalar_type());
  if (!in_type || !out_type || left.scalar_type() != right.scalar_type()) return std::nullopt;
  if (*in_type != *out_type && *out_type != cuda::Element::float32) return std::nullopt;
  const auto left_lie = lie_of(left), right_lie = lie_of(right), out_lie = lie_of(out);
  if (!left_lie || !right_lie || !out_lie || out_lie->turned) return std::nullopt;
  if (added.defined() && !same_form(added, out)) return std::nullopt;
  if (bias.defined() && (bias.scalar_type() != out.scalar_type() || !bias.is_contiguous())) return std::nullopt;
  cuda::Product product{.rows = out.size(0),
                        .columns = out.size(1),
                        .depth = left.size(1),
                        .left_turned = left_lie->turned,
                        .right_turned = right_lie->turned,
                        .left_stride = left_lie->stride,
                        .right_stride = right_lie->stride,
                        .out_stride = out_lie->stride,
                        .in = *in_type,
                        .out = *out_type,
                        .adds = added.defined(),
                        .has_bias = bias.defined()};
  product.tf32 = *in_type == cuda::Element::float32 && at::globalContext().allowTF32CuBLAS();
  std::uintptr_t addresses = kMostAlignment;
  for (const auto* operand : {&out, &left, &right, &added, &bias}) {
    if (operand->defined()) addresses |= reinterpret_cast<std::uintptr_t>(operand->const_data_ptr());
  }
  product.alignment = 1 << std::countr_zero(addresses);
  return product;
}

}  // namespace orthant::nn
