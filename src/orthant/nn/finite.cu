// variant ELEMENT=0: at most 40 registers
// variant ELEMENT=2: at most 40 registers
// all ELEMENT=0,1,2
//
// Sets *found to NaN when one of n elements is NaN or infinite: all bits of its exponent are set.
#if ELEMENT == 2
#define EXPONENTS 0x7f800000u
DEVICE u32 bad(u32 word) {
  return (word & EXPONENTS) == EXPONENTS;
}
#else
#if ELEMENT == 0
#define EXPONENT 0x7f80u
#else
#define EXPONENT 0x7c00u
#endif
DEVICE u32 bad(u32 word) {
  return (word & EXPONENT) == EXPONENT || (word & (EXPONENT << 16)) == (EXPONENT << 16);
}
#endif

extern "C" __global__ void __launch_bounds__(256) find_not_finite(float* found, const Element* x, i64 n) {
  const i64 head = min((i64)((16 - ((u64)x & 15)) & 15) / (i64)sizeof(Element), n);
  const i64 vectors = (n - head) / LANE;
  const uint4* body = reinterpret_cast<const uint4*>(x + head);
  const i64 threads = (i64)gridDim.x * blockDim.x;
  const i64 thread = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  u32 any = 0;
#pragma unroll 4
  for (i64 i = thread; i < vectors; i += threads) {
    const uint4 v = body[i];
    any |= bad(v.x) | bad(v.y) | bad(v.z) | bad(v.w);
  }
  const i64 rest = head + vectors * LANE;
  for (i64 i = thread; i < head + n - rest; i += threads) {
    any |= !isfinite(widened(x[i < head ? i : rest + i - head]));
  }
  if (any) *found = __int_as_float(0x7fffffff);
}
