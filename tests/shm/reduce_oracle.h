// The oracle of the reduction kernels: one element at a time, values as exact doubles, rounding by searching the
// nearest representable value instead of bit tricks.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "orthant/shm/reduce.h"

namespace orthant::shm::test {

using Element = std::uint64_t;  // the bits of one element of any dtype, in the low bytes
using Elements = std::vector<Element>;

constexpr std::array kDtypes = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i64, Dtype::i32, Dtype::u8};

// The magnitude (sign bit clear) of a float with the given layout; infinity is 2^(largest exponent + 1), NaN is NaN.
inline double magnitude_value(std::uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int exponent = static_cast<int>(bits >> mantissa_bits);
  const std::uint32_t mantissa = bits & ((1u << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  if (exponent == (1 << exponent_bits) - 1 && mantissa != 0) return std::numeric_limits<double>::quiet_NaN();
  if (exponent == 0) return std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return std::ldexp(mantissa + (1u << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  int exponent_bits;
  int mantissa_bits;

  std::uint32_t infinity() const { return ((1u << exponent_bits) - 1) << mantissa_bits; }

  float widened(Element element) const {
    const auto bits = static_cast<std::uint32_t>(element);
    const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
    const std::uint32_t magnitude = bits & 0x7fff;
    if (magnitude == infinity()) return static_cast<float>(sign) * std::numeric_limits<float>::infinity();
    return static_cast<float>(sign * magnitude_value(magnitude, exponent_bits, mantissa_bits));
  }

  // The nearest of all values, of two equally near ones that with an even last bit.
  Element rounded(float value) const {
    const Element sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value)) return sign | (infinity() + 1);
    if (std::isinf(value)) return sign | infinity();
    const double wanted = std::fabs(static_cast<double>(value));
    std::uint32_t below = 0;  // the largest magnitude not above `wanted`, by bisection
    std::uint32_t above = infinity();
    if (wanted >= magnitude_value(above, exponent_bits, mantissa_bits)) return sign | above;
    while (above - below > 1) {
      const std::uint32_t middle = (below + above) / 2;
      (magnitude_value(middle, exponent_bits, mantissa_bits) <= wanted ? below : above) = middle;
    }
    const double to_below = wanted - magnitude_value(below, exponent_bits, mantissa_bits);
    const double to_above = magnitude_value(above, exponent_bits, mantissa_bits) - wanted;
    const bool tie_to_below = to_below == to_above && below % 2 == 0;
    return sign | (to_below < to_above || tie_to_below ? below : above);
  }
};

constexpr Format kBf16 = {8, 7};
constexpr Format kF16 = {5, 10};

template <class Value>
Value combined(Reduce op, Value left, Value right) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (op == Reduce::sum) return left + right;
    if (std::isnan(left)) return left;
    if (std::isnan(right)) return right;
    return left > right ? left : right;
  } else {
    using Unsigned = std::make_unsigned_t<Value>;
    if (op == Reduce::sum) return static_cast<Value>(static_cast<Unsigned>(left) + static_cast<Unsigned>(right));
    return left > right ? left : right;
  }
}

template <class Value, class Decode, class Encode>
Elements reduced(Reduce op, const std::vector<Elements>& inputs, Decode decode, Encode encode) {
  Elements result;
  for (std::size_t i = 0; i < inputs[0].size(); ++i) {
    Value value = decode(inputs[0][i]);
    for (std::size_t k = 1; k < inputs.size(); ++k) value = combined<Value>(op, value, decode(inputs[k][i]));
    result.push_back(encode(value));
  }
  return result;
}

template <class Value, class Bits>
Elements reduced_bits(Reduce op, const std::vector<Elements>& inputs) {
  return reduced<Value>(
      op, inputs, [](Element element) { return std::bit_cast<Value>(static_cast<Bits>(element)); },
      [](Value value) { return Element{std::bit_cast<Bits>(value)}; });
}

inline Elements reduced_narrow(Reduce op, const std::vector<Elements>& inputs, const Format& format) {
  return reduced<float>(
      op, inputs, [&](Element element) { return format.widened(element); },
      [&](float value) { return format.rounded(value); });
}

inline Elements oracle(Dtype dtype, Reduce op, const std::vector<Elements>& inputs) {
  if (inputs.size() == 1) return inputs[0];
  switch (dtype) {
    case Dtype::f32:
      return reduced_bits<float, std::uint32_t>(op, inputs);
    case Dtype::f64:
      return reduced_bits<double, std::uint64_t>(op, inputs);
    case Dtype::bf16:
      return reduced_narrow(op, inputs, kBf16);
    case Dtype::f16:
      return reduced_narrow(op, inputs, kF16);
    case Dtype::i64:
      return reduced_bits<std::int64_t, std::uint64_t>(op, inputs);
    case Dtype::i32:
      return reduced_bits<std::int32_t, std::uint32_t>(op, inputs);
    case Dtype::u8:
      return reduced_bits<std::uint8_t, std::uint8_t>(op, inputs);
  }
  return {};
}

inline bool is_nan(Dtype dtype, Element element) {
  switch (dtype) {
    case Dtype::f32:
      return std::isnan(std::bit_cast<float>(static_cast<std::uint32_t>(element)));
    case Dtype::f64:
      return std::isnan(std::bit_cast<double>(element));
    case Dtype::bf16:
      return (element & 0x7fff) > 0x7f80;
    case Dtype::f16:
      return (element & 0x7fff) > 0x7c00;
    default:
      return false;
  }
}

}  // namespace orthant::shm::test
