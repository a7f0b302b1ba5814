#include "orthant/ops/linear/float8.h"

#include <ATen/ATen.h>

#include <limits>

#include "orthant/ops/linear/matrix.h"

namespace orthant::nn {
namespace {

constexpr int kFloatFraction = 23, kFloatBias = 127, kNoNumber = 255;  // of float32
constexpr int kMostFloat8Power = 126;                                  // its reciprocal is a normal float32

// Sums of a product stay within the multiplying units, which keep fewer bits than float32 of them; leaving them for
// float32 in between takes longer.
constexpr bool kFastSums = true;

at::ScalarType float8_wide_type(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

// 2^n of whole numbers n that float32 has as normal numbers.
at::Tensor power_of_two(const at::Tensor& n) {
  return (n + kFloatBias).bitwise_left_shift(kFloatFraction).view(at::kFloat);
}

}  // namespace

namespace plain {

// The largest power of two with which no magnitude of a row exceeds 448 = 1.75 * 2^8.
Float8Matrix round_float8(const at::Tensor& x) {
  const at::ScalarType wide = float8_wide_type(x.scalar_type());
  const at::Tensor numbers = x.to(wide);
  const at::Tensor largest =
      x.size(1) == 0 ? at::zeros({x.size(0), 1}, x.options().dtype(at::kFloat)) : numbers.abs().amax(1, true);
  const at::Tensor bits = largest.to(at::kFloat).contiguous().view(at::kInt);
  const at::Tensor exponent = bits.bitwise_right_shift(kFloatFraction);
  const at::Tensor fraction = bits.bitwise_and((1 << kFloatFraction) - 1);
  const at::Tensor above = fraction.gt(0x600000).to(at::kInt);
  const at::Tensor power = (kFloatBias + 8 - exponent - above).clamp_max(kMostFloat8Power);
  at::Tensor scales = power_of_two(-power).to(wide);
  scales.masked_fill_(exponent.eq(kNoNumber), std::numeric_limits<float>::quiet_NaN());
  return {(numbers * power_of_two(power).to(wide)).to(at::kFloat8_e4m3fn), scales};
}

at::Tensor float8_product(const Float8Matrix& left, const Float8Matrix& right, at::ScalarType dtype,
                          const at::Tensor& bias) {
  const at::ScalarType wide = float8_wide_type(dtype);
  at::Tensor y = matrix_times(left.values.to(wide), right.values.to(wide).t());
  y.mul_(left.scales.to(wide)).mul_(right.scales.to(wide).t());
  if (bias.defined()) y.add_(bias);
  return y.to(dtype);
}

}  // namespace plain

Float8Matrix round_float8(const at::Tensor& x) {
  return device::serves_float8(x) ? device::round_float8(x) : plain::round_float8(x);
}

Float8Matrix round_float8_turned(const at::Tensor& x) {
  return device::serves_float8_turned(x) ? device::round_float8_turned(x) : plain::round_float8(x.t());
}

at::Tensor float8_product(const Float8Matrix& left, const Float8Matrix& right, at::ScalarType dtype,
                          const at::Tensor& bias, const at::Tensor& residual) {
  at::Tensor y;
  if (left.values.is_cuda() && left.values.size(0) > 0) {
    y = at::empty({left.values.size(0), right.values.size(0)}, left.values.options().dtype(dtype));
    at::_scaled_mm_out(y, left.values, right.values.t(), left.scales, right.scales.view({1, -1}),
                       bias.defined() ? std::optional(bias) : std::nullopt, std::nullopt, dtype, kFastSums);
  } else {
    y = plain::float8_product(left, right, dtype, bias);
  }
  return residual.defined() ? y.add_(residual) : y;
}

}  // namespace orthant::nn
