// Compiled with -mavx2 -mf16c; runs only where supported(Isa::avx2).
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "orthant/shm/reduce_kernels.h"

namespace orthant::shm::avx2 {

constexpr std::size_t kVectorBytes = 32;

#include "orthant/shm/reduce_kernels.inc"

namespace {

ORTHANT_INLINE U32Vec widen_u16(U16HalfVec narrow) {
  return reinterpret_cast<U32Vec>(_mm256_cvtepu16_epi32(reinterpret_cast<__m128i>(narrow)));
}

ORTHANT_INLINE U16HalfVec narrow_u32(U32Vec wide) {
  const __m256i lanes = reinterpret_cast<__m256i>(wide);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(lanes, lanes), _MM_SHUFFLE(3, 1, 2, 0));
  return reinterpret_cast<U16HalfVec>(_mm256_castsi256_si128(packed));
}

// The empty assembly keeps clang from comparing f16 instead of f32, which it does one lane at a time.
ORTHANT_INLINE F32Vec widen_f16(U16HalfVec half) {
  F32Vec wide = _mm256_cvtph_ps(reinterpret_cast<__m128i>(half));
  __asm__("" : "+x"(wide));
  return wide;
}

ORTHANT_INLINE U16HalfVec narrow_f16(F32Vec value) {
  return reinterpret_cast<U16HalfVec>(_mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

}  // namespace

}  // namespace orthant::shm::avx2
