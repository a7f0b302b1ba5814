// Compiled with -mavx512f -mavx512bw -mavx512vl -mavx512dq; runs only where supported(Isa::avx512).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "orthant/shm/reduce_kernels.h"

namespace orthant::shm::avx512 {

constexpr std::size_t kVectorBytes = 64;

#include "orthant/shm/reduce_kernels.inc"

namespace {

ORTHANT_INLINE U32Vec widen_u16(U16HalfVec narrow) {
  return reinterpret_cast<U32Vec>(_mm512_cvtepu16_epi32(reinterpret_cast<__m256i>(narrow)));
}

ORTHANT_INLINE U16HalfVec narrow_u32(U32Vec wide) {
  return reinterpret_cast<U16HalfVec>(_mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(wide)));
}

// The empty assembly keeps clang from comparing f16 instead of f32, which it does one lane at a time.
ORTHANT_INLINE F32Vec widen_f16(U16HalfVec half) {
  F32Vec wide = _mm512_cvtph_ps(reinterpret_cast<__m256i>(half));
  __asm__("" : "+v"(wide));
  return wide;
}

ORTHANT_INLINE U16HalfVec narrow_f16(F32Vec value) {
  return reinterpret_cast<U16HalfVec>(_mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace

}  // namespace orthant::shm::avx512
