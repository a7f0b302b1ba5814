// Compiled for the oldest CPU there is: 16-byte vectors, and f16 converted by integer arithmetic.
#include <cstddef>
#include <cstdint>

#include "orthant/shm/reduce_kernels.h"

namespace orthant::shm::plain {

constexpr std::size_t kVectorBytes = 16;

#include "orthant/shm/reduce_kernels.inc"

namespace {

ORTHANT_INLINE U32Vec widen_u16(U16HalfVec narrow) {
  return __builtin_convertvector(narrow, U32Vec);
}

ORTHANT_INLINE U16HalfVec narrow_u32(U32Vec wide) {
  return __builtin_convertvector(wide, U16HalfVec);
}

// f16 has 5 bits of exponent with bias 15 and 10 of mantissa; f32 has 8 with bias 127 and 23. All magnitudes below are
// not negative, so signed vectors compare them, which old CPUs do faster.
ORTHANT_INLINE F32Vec widen_f16(U16HalfVec half) {
  const I32Vec bits = reinterpret_cast<I32Vec>(widen_u16(half));
  const I32Vec magnitude = bits & 0x7fff;
  const I32Vec normal = (magnitude << 13) + ((127 - 15) << 23);
  const I32Vec infinite_or_nan = (magnitude << 13) | 0x7f800000;
  const I32Vec denormal = reinterpret_cast<I32Vec>(__builtin_convertvector(magnitude, F32Vec) * 0x1p-24f);
  const I32Vec finite = magnitude < 0x0400 ? denormal : normal;
  const U32Vec sign = reinterpret_cast<U32Vec>(bits & 0x8000) << 16;
  return reinterpret_cast<F32Vec>(reinterpret_cast<U32Vec>(magnitude < 0x7c00 ? finite : infinite_or_nan) | sign);
}

ORTHANT_INLINE U16HalfVec narrow_f16(F32Vec value) {
  const U32Vec bits = reinterpret_cast<U32Vec>(value);
  const I32Vec magnitude = reinterpret_cast<I32Vec>(bits & 0x7fffffffu);
  // Below 2^-14 the last bit of an f16 is 2^-24, which is also the last bit of an f32 near 0.5: the addition rounds.
  const I32Vec denormal =
      reinterpret_cast<I32Vec>(reinterpret_cast<F32Vec>(magnitude) + 0.5f) - std::int32_t{0x3f000000};
  // Just under half of the last kept bit, or exactly half when that bit is odd; a carry into the exponent is right.
  const I32Vec normal = (magnitude - ((127 - 15) << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  const I32Vec quiet_nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
  I32Vec result = magnitude < 0x38800000 ? denormal : normal;        // 2^-14
  result = magnitude < 0x47800000 ? result : (result & 0) + 0x7c00;  // 2^16; from 65520 on, rounding has done it
  result = magnitude > 0x7f800000 ? quiet_nan : result;
  return narrow_u32(reinterpret_cast<U32Vec>(result) | ((bits >> 16) & 0x8000u));
}

}  // namespace

}  // namespace orthant::shm::plain
