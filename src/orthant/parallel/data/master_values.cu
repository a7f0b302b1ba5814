// variant ELEMENT=2: at most 32 registers
//
// The bfloat16 copy of float32 parameters, rounded as Note [Split master] in master_values.h says.
DEVICE u32 upper_half(float x) {
  const u32 bits = __float_as_uint(x);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc0u : (bits + 0x8000u) >> 16;
}

// A thread for every 4 elements. `aligned`: both begin at multiples of 16 bytes.
extern "C" __global__ void round_to_bfloat16(const float* from, u16* to, i64 count, int aligned) {
  const i64 at = ((i64)blockIdx.x * blockDim.x + threadIdx.x) * 4;
  if (aligned && at + 4 <= count) {
    const float4 x = *reinterpret_cast<const float4*>(from + at);
    *reinterpret_cast<uint2*>(to + at) =
        make_uint2(upper_half(x.x) | (upper_half(x.y) << 16), upper_half(x.z) | (upper_half(x.w) << 16));
    return;
  }
  for (i64 i = at; i < at + 4 && i < count; ++i) to[i] = (u16)upper_half(from[i]);
}
