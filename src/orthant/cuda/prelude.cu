// What all kernels share: the element type that ELEMENT chooses, loads and stores of 16 bytes, sums over a warp and a
// block. Arithmetic is float32; conversions round to nearest, ties to even.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

DEVICE u32 pack_bfloat16(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE u32 pack_float16(float low, float high) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE float from_float16(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

#ifndef ELEMENT
#define ELEMENT 2
#endif
#if ELEMENT == 2
typedef float Element;
#define LANE 4  // elements of a 16-byte vector
DEVICE float widened(Element x) { return x; }
DEVICE Element narrowed(float x) { return x; }
#else
typedef u16 Element;
#define LANE 8
#if ELEMENT == 0
DEVICE float widened(Element x) { return __uint_as_float((u32)x << 16); }
DEVICE Element narrowed(float x) { return (u16)pack_bfloat16(x, 0.0f); }
#define PACK pack_bfloat16
#else
DEVICE float widened(Element x) { return from_float16(x); }
DEVICE Element narrowed(float x) { return (u16)pack_float16(x, 0.0f); }
#define PACK pack_float16
#endif
#endif
// What a store and a load in between would make of x.
DEVICE float rounded(float x) { return widened(narrowed(x)); }

DEVICE void widen(const uint4& v, float (&x)[LANE]) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if ELEMENT == 2
    x[i] = __uint_as_float(words[i]);
#elif ELEMENT == 0
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
#else
    x[2 * i] = from_float16((u16)(words[i] & 0xffffu));
    x[2 * i + 1] = from_float16((u16)(words[i] >> 16));
#endif
  }
}
DEVICE uint4 narrow(const float (&x)[LANE]) {
#if ELEMENT == 2
  return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
#else
  return make_uint4(PACK(x[0], x[1]), PACK(x[2], x[3]), PACK(x[4], x[5]), PACK(x[6], x[7]));
#endif
}

// Elements [at, at + LANE) of a row of `size`; those beyond its end are 0 and are not written. ALIGNED: rows begin at
// multiples of 16 bytes and `size` is a multiple of LANE.
#ifndef ALIGNED
#define ALIGNED 1
#endif
DEVICE uint4 load_vector(const Element* row, int at, int size) {
#if ALIGNED
  return at < size ? *reinterpret_cast<const uint4*>(row + at) : make_uint4(0, 0, 0, 0);
#else
  uint4 v = make_uint4(0, 0, 0, 0);
  Element* parts = reinterpret_cast<Element*>(&v);
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    if (at + j < size) parts[j] = row[at + j];
  }
  return v;
#endif
}
DEVICE void store_vector(Element* row, int at, int size, const uint4& v) {
#if ALIGNED
  if (at < size) *reinterpret_cast<uint4*>(row + at) = v;
#else
  const Element* parts = reinterpret_cast<const Element*>(&v);
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    if (at + j < size) row[at + j] = parts[j];
  }
#endif
}

// In one fixed order; every lane has the result.
DEVICE float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}
DEVICE float warp_maximum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}
