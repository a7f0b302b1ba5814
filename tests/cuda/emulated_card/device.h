// What a kernel's source finds when it is compiled for the emulated card: CUDA's built-in types and functions as far as
// the kernels use them, and a function for each instruction of inline assembly, named after it (see translate.h).
// Floating-point contraction is off; conversions round to nearest, ties to even.
#pragma once

#include "card.h"

#define __CUDA_ARCH_FEAT_SM90_ALL
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(bytes) __attribute__((aligned(bytes)))

struct __align__(8) int2 {
  int x, y;
};
struct __align__(8) uint2 {
  unsigned x, y;
};
struct __align__(16) uint4 {
  unsigned x, y, z, w;
};
struct __align__(8) float2 {
  float x, y;
};
struct __align__(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) {
  return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
  return {x, y, z, w};
}
inline float2 make_float2(float x, float y) {
  return {x, y};
}
inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}

namespace emulated_card {

template <class To, class From>
inline To bits_of(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

// Static variables of shared memory get their places in the order of first use, 16 bytes or more apart. SITE numbers
// their declarations.
inline unsigned static_bytes = 0;
inline unsigned reserved(unsigned bytes) {
  const unsigned place = static_bytes;
  static_bytes = (place + bytes + 31) / 16 * 16;
  return place;
}
template <class T, int SITE>
inline T& static_shared() {
  static const unsigned place = reserved(sizeof(T));
  return *reinterpret_cast<T*>(emulated_static_shared(place, sizeof(T)));
}

// Arguments of a kernel as the driver has them: pointers to each.
template <class... Parameters>
struct Call {
  Call(void (*kernel)(Parameters...), Parameters... arguments) { kernel(arguments...); }
};
template <class... Parameters>
inline void call(void (*kernel)(Parameters...), void** arguments) {
  Call<Parameters...>{kernel, *static_cast<Parameters*>(*arguments++)...};
}

template <class T>
struct Exchange {
  T value;
  int offset;
  T other;
};
template <class T>
void exchange(void** brought, int count) {
  for (int lane = 0; lane < count; ++lane) {
    auto* const own = static_cast<Exchange<T>*>(brought[lane]);
    if (own == nullptr) continue;
    const int partner = lane ^ own->offset;
    const auto* const from = partner < count ? static_cast<Exchange<T>*>(brought[partner]) : nullptr;
    if (from == nullptr) emulated_fail("__shfl_xor_sync asks a lane that has ended or never was");
    own->other = from->value;
  }
}
// The same of the lane whose number `offset` is.
template <class T>
void take(void** brought, int count) {
  for (int lane = 0; lane < count; ++lane) {
    auto* const own = static_cast<Exchange<T>*>(brought[lane]);
    if (own == nullptr) continue;
    const auto* const from = own->offset < count ? static_cast<Exchange<T>*>(brought[own->offset]) : nullptr;
    if (from == nullptr) emulated_fail("__shfl_sync asks a lane that has ended or never was");
    own->other = from->value;
  }
}

inline float flushed(float x) {
  return __builtin_fabsf(x) < 1.17549435e-38f ? 0.0f : x;
}
inline unsigned bfloat16_bits(float x) {
  const unsigned bits = bits_of<unsigned>(x);
  if (x != x) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
inline unsigned float16_bits(float x) {
  return x != x ? 0x7fffu : bits_of<unsigned short>(static_cast<_Float16>(x));
}

// e4m3, to nearest, ties to even; too large numbers become the largest.
inline unsigned float8_bits(float x) {
  const unsigned bits = bits_of<unsigned>(x), sign = bits >> 24 & 0x80u, most = 0x7eu;
  const float size = __builtin_fabsf(x), ulps = 8388608.0f;
  if (x != x) return 0x7fu;
  if (size >= 448.0f) return sign | most;
  if (size < 0.015625f) return sign | static_cast<unsigned>(size * 512.0f + ulps - ulps);
  const unsigned rounded = ((bits & 0x7fffffffu) + 0x7ffffu + (bits >> 20 & 1u)) >> 20;
  return sign | (rounded - (120u << 3));
}

}  // namespace emulated_card

extern "C" {
float expf(float);
float exp2f(float);
float logf(float);
float sqrtf(float);
float erfcf(float);
float fabsf(float);
float fmaxf(float, float);
float fmaf(float, float, float);
double pow(double, double);
double sqrt(double);
double exp(double);
double fma(double, double, double);
}
inline float rsqrtf(float x) {
  return 1.0f / sqrtf(x);
}
inline float __expf(float x) {
  return exp2f(x * 1.4426950409f);
}
inline float __fadd_rn(float x, float y) {
  return x + y;
}
inline float __fmul_rn(float x, float y) {
  return x * y;
}
inline bool isfinite(float x) {
  return __builtin_isfinite(x);
}
inline bool isfinite(double x) {
  return __builtin_isfinite(x);
}
template <class A, class B>
inline auto min(A a, B b) -> decltype(a + b) {
  return b < a ? b : a;
}
template <class A, class B>
inline auto max(A a, B b) -> decltype(a + b) {
  return a < b ? b : a;
}
inline float __int_as_float(int x) {
  return emulated_card::bits_of<float>(x);
}
inline float __uint_as_float(unsigned x) {
  return emulated_card::bits_of<float>(x);
}
inline unsigned __float_as_uint(float x) {
  return emulated_card::bits_of<unsigned>(x);
}
inline double __longlong_as_double(long long x) {
  return emulated_card::bits_of<double>(x);
}
template <class T>
inline T __ldcs(const T* from) {
  return *from;
}
template <class T>
inline T __ldg(const T* from) {
  return *from;
}
template <class T>
inline void __stcs(T* to, T value) {
  *to = value;
}
template <class T>
inline T __ldcg(const T* from) {
  return *from;
}
template <class T>
inline void __stcg(T* to, T value) {
  *to = value;
}
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  const unsigned before = *to;
  *to += value;
  return before;
}
inline unsigned long __cvta_generic_to_shared(const void* pointer) {
  return emulated_shared_address(pointer);
}

inline void __syncthreads() {
  emulated_meet_block("__syncthreads", [](void**, int) {}, nullptr);
}
inline int __syncthreads_or(int any) {
  emulated_meet_block(
      "__syncthreads_or",
      [](void** brought, int count) {
        int all = 0;
        for (int i = 0; i < count; ++i) all |= brought[i] != nullptr && *static_cast<int*>(brought[i]) != 0;
        for (int i = 0; i < count; ++i) {
          if (brought[i] != nullptr) *static_cast<int*>(brought[i]) = all;
        }
      },
      &any);
  return any;
}
template <class T>
inline T __shfl_xor_sync(unsigned, T value, int offset) {
  emulated_card::Exchange<T> own = {value, offset, value};
  emulated_meet_warp("__shfl_xor_sync", emulated_card::exchange<T>, &own);
  return own.other;
}
template <class T>
inline T __shfl_sync(unsigned, T value, int lane) {
  emulated_card::Exchange<T> own = {value, lane, value};
  emulated_meet_warp("__shfl_sync", emulated_card::take<T>, &own);
  return own.other;
}
inline unsigned __ballot_sync(unsigned, int vote) {
  unsigned own = vote != 0;
  emulated_meet_warp(
      "__ballot_sync",
      [](void** brought, int count) {
        unsigned all = 0;
        for (int i = 0; i < count; ++i) all |= (brought[i] != nullptr ? *static_cast<unsigned*>(brought[i]) : 0u) << i;
        for (int i = 0; i < count; ++i) {
          if (brought[i] != nullptr) *static_cast<unsigned*>(brought[i]) = all;
        }
      },
      &own);
  return own;
}

// ---- instructions of inline assembly, operands in their order ----
inline void ptx_cvt_rn_bf16x2_f32(unsigned& packed, float high, float low) {
  packed = emulated_card::bfloat16_bits(high) << 16 | emulated_card::bfloat16_bits(low);
}
inline void ptx_cvt_rn_f16x2_f32(unsigned& packed, float high, float low) {
  packed = emulated_card::float16_bits(high) << 16 | emulated_card::float16_bits(low);
}
inline void ptx_cvt_f32_f16(float& value, unsigned short bits) {
  value = emulated_card::bits_of<_Float16>(bits);
}
inline void ptx_cvt_rn_satfinite_e4m3x2_f32(unsigned short& packed, float high, float low) {
  packed = static_cast<unsigned short>(emulated_card::float8_bits(high) << 8 | emulated_card::float8_bits(low));
}
inline void ptx_ex2_approx_ftz_f32(float& y, float x) {
  y = emulated_card::flushed(exp2f(emulated_card::flushed(x)));
}
inline void ptx_rcp_approx_ftz_f32(float& y, float x) {
  y = emulated_card::flushed(1.0f / emulated_card::flushed(x));
}
inline void ptx_cp_async_cg_shared_global(unsigned to, const void* from, unsigned bytes, unsigned taken) {
  emulated_copy_async(to, from, bytes, taken);
}
inline void ptx_cp_async_ca_shared_global(unsigned to, const void* from, unsigned bytes, unsigned taken) {
  emulated_copy_async(to, from, bytes, taken);
}
inline void ptx_griddepcontrol_launch_dependents() {}
inline void ptx_griddepcontrol_wait() {}
inline void ptx_cp_async_commit_group() {
  emulated_commit_copies();
}
inline void ptx_cp_async_wait_group(int newer) {
  emulated_await_copies(newer);
}
inline void ptx_ldmatrix_sync_aligned_m8n8_x4_shared_b16(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3,
                                                         unsigned from) {
  unsigned r[4];
  emulated_load_matrices(r, from, false);
  r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
}
inline void ptx_ldmatrix_sync_aligned_m8n8_x4_trans_shared_b16(unsigned& r0, unsigned& r1, unsigned& r2, unsigned& r3,
                                                               unsigned from) {
  unsigned r[4];
  emulated_load_matrices(r, from, true);
  r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3];
}
inline void emulated_mma(float& d0, float& d1, float& d2, float& d3, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                         unsigned b0, unsigned b1, float c0, float c1, float c2, float c3, bool bfloat16) {
  float d[4] = {c0, c1, c2, c3};
  emulated_multiply_add(d, {a0, a1, a2, a3}, {b0, b1}, bfloat16);
  d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3];
}
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_bf16_bf16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                    unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                                    unsigned b0, unsigned b1, float c0, float c1,
                                                                    float c2, float c3) {
  emulated_mma(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3, true);
}
inline void ptx_mma_sync_aligned_m16n8k16_row_col_f32_f16_f16_f32(float& d0, float& d1, float& d2, float& d3,
                                                                  unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                                  unsigned b0, unsigned b1, float c0, float c1,
                                                                  float c2, float c3) {
  emulated_mma(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1, c0, c1, c2, c3, false);
}
inline void ptx_fence_proxy_async_shared__cta() {}
inline void ptx_wgmma_fence_sync_aligned() {}
inline void ptx_wgmma_commit_group_sync_aligned() {
  emulated_commit_products();
}
inline void ptx_wgmma_wait_group_sync_aligned(int newer) {
  emulated_await_products(newer);
}
namespace emulated_card {
// Operands behind the sums: both matrices, scale of d, signs, orders; or the left factor's registers, a matrix, the
// same.
inline void take_factors(EmulatedProduct& product, unsigned long long a, unsigned long long b, bool adds, int, int,
                         bool a_by_rows, bool b_by_rows) {
  product.a_is_shared = true;
  product.a_matrix = a, product.b_matrix = b;
  product.adds = adds, product.a_by_rows = a_by_rows, product.b_by_rows = b_by_rows;
}
inline void take_factors(EmulatedProduct& product, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                         unsigned long long b, bool adds, int, int, bool b_by_rows) {
  product.a_is_shared = false;
  product.a[0] = a0, product.a[1] = a1, product.a[2] = a2, product.a[3] = a3;
  product.b_matrix = b;
  product.adds = adds, product.b_by_rows = b_by_rows;
}
template <int LEFT>
struct Sums {
  template <class... Rest>
  static void take(EmulatedProduct& product, float** to, float& sum, Rest&&... rest) {
    *to = &sum;
    Sums<LEFT - 1>::take(product, to + 1, rest...);
  }
};
template <>
struct Sums<0> {
  template <class... Rest>
  static void take(EmulatedProduct& product, float**, Rest&&... rest) {
    take_factors(product, rest...);
  }
};
}  // namespace emulated_card
#define EMULATED_WGMMA(COLUMNS, TYPE, BFLOAT16)                                                        \
  template <class... Operands>                                                                         \
  inline void ptx_wgmma_mma_async_sync_aligned_m64n##COLUMNS##k16_f32_##TYPE(Operands&&... operands) { \
    EmulatedProduct product = {};                                                                      \
    product.columns = COLUMNS;                                                                         \
    product.bfloat16 = BFLOAT16;                                                                       \
    emulated_card::Sums<COLUMNS / 2>::take(product, product.d, operands...);                           \
    emulated_multiply_async(&product);                                                                 \
  }
#define EMULATED_WGMMAS(COLUMNS)           \
  EMULATED_WGMMA(COLUMNS, bf16_bf16, true) \
  EMULATED_WGMMA(COLUMNS, f16_f16, false)
EMULATED_WGMMAS(16)
EMULATED_WGMMAS(32)
EMULATED_WGMMAS(64)
EMULATED_WGMMAS(128)
EMULATED_WGMMAS(256)
inline void ptx_ld_shared_v2_f32(float& x, float& y, unsigned from) {
  const auto* const pair = reinterpret_cast<const float*>(emulated_checked_shared("ld.shared.v2.f32", from, 8));
  x = pair[0];
  y = pair[1];
}
inline void ptx_ld_shared_v4_f32(float& x, float& y, float& z, float& w, unsigned from) {
  const auto* const four = reinterpret_cast<const float*>(emulated_checked_shared("ld.shared.v4.f32", from, 16));
  x = four[0], y = four[1], z = four[2], w = four[3];
}
// Blocks run one after the other: what a block waits for has been there before it began.
inline void ptx_ld_acquire_gpu_global_u32(unsigned& value, const unsigned* from) {
  value = *from;
}
inline void ptx_ld_relaxed_gpu_global_u32(unsigned& value, const unsigned* from) {
  value = *from;
}
inline void ptx_st_release_gpu_global_u32(unsigned* to, unsigned value) {
  *to = value;
}
// Bytes of both words by the selector's four digits; its eights stand for the byte's highest bit, eight times.
inline void ptx_prmt_b32(unsigned& r, unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(high) << 32 | low;
  r = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = selector >> (4 * i), byte = bytes >> (8 * (digit & 7u)) & 0xffu;
    r |= ((digit & 8u) == 0 ? byte : byte >= 128 ? 0xffu : 0u) << (8 * i);
  }
}
inline void ptx_st_shared_b32(unsigned to, unsigned value) {
  *reinterpret_cast<unsigned*>(emulated_checked_shared("st.shared.b32", to, 4)) = value;
}
