// variant ELEMENT=0 VECTORS=4 WARPS=2: at most 64 registers
// variant ELEMENT=0 VECTORS=4 WARPS=32: at most 64 registers
// variant ELEMENT=2 VECTORS=4 WARPS=32: at most 64 registers
// all ELEMENT=0,1,2 VECTORS=1,2,3,4 WARPS=1,2,4,8,16,32
// from sm_89
//
// Matrices rounded to e4m3, each row by a power of two of its own: see Note [Float8 products] in program/float8.h. Rows
// and columns are multiples of 16; rows begin at multiples of 16 bytes.
#define THREADS (WARPS > 4 ? 32 * WARPS : 128)
#define ROWS (THREADS / (32 * WARPS))  // of a block at a time

// The largest n for which largest * 2^n is at most 448, and at most 126. A largest that is not finite has some n, too.
DEVICE int power_for(float largest) {
  const u32 bits = __float_as_uint(largest);
  return min(135 - (int)(bits >> 23) - ((bits & 0x7fffffu) > 0x600000u), 126);
}
DEVICE float power_of_two(int n) {
  return __uint_as_float((u32)(n + 127) << 23);
}
// What a product multiplies the rounded row by: NaN where it is not finite.
DEVICE float scale_for(float largest, int power) {
  return isfinite(largest) ? power_of_two(-power) : __uint_as_float(0x7fc00000u);
}

// The lower byte is `low`.
DEVICE u16 pack_float8(float low, float high) {
  u16 packed;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE u32 pack_float8(float a, float b, float c, float d) {
  return (u32)pack_float8(a, b) | (u32)pack_float8(c, d) << 16;
}

// Of a row that WARPS_OF_ROW neighbouring warps of a block share; as row_sum().
template <int WARPS_OF_ROW>
DEVICE float row_maximum(float x, float* scratch) {
  x = warp_maximum(x);
  if (WARPS_OF_ROW == 1) return x;
  const int warp = threadIdx.x >> 5;
  if ((threadIdx.x & 31) == 0) scratch[warp] = x;
  __syncthreads();
  const int first = warp / WARPS_OF_ROW * WARPS_OF_ROW;
#pragma unroll
  for (int w = 0; w < WARPS_OF_ROW; ++w) x = fmaxf(x, scratch[first + w]);
  return x;
}

DEVICE float largest_of(const uint4& x) {
  float a[LANE], largest = 0;
  widen(x, a);
#pragma unroll
  for (int j = 0; j < LANE; ++j) largest = fmaxf(largest, fabsf(a[j]));
  return largest;
}
DEVICE void store_float8(u8* y, const uint4& x, float by) {
  float a[LANE];
  widen(x, a);
#pragma unroll
  for (int j = 0; j < LANE; ++j) a[j] *= by;
#if LANE == 8
  *reinterpret_cast<uint2*>(y) = make_uint2(pack_float8(a[0], a[1], a[2], a[3]), pack_float8(a[4], a[5], a[6], a[7]));
#else
  *reinterpret_cast<u32*>(y) = pack_float8(a[0], a[1], a[2], a[3]);
#endif
}

// fmaxf() takes the other number where one is NaN: what is NaN itself is rounded to NaN.
extern "C" __global__ void __launch_bounds__(THREADS)
    float8_rows(u8* y, float* scales, const Element* x, int rows, int width) {
  __shared__ float scratch[THREADS / 32];
  const int lane = threadIdx.x % (32 * WARPS);
  const int row = blockIdx.x * ROWS + threadIdx.x / (32 * WARPS);
  const bool inside = row < rows;
  const Element* from = x + (i64)(inside ? row : 0) * width;
  uint4 kept[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) kept[v] = load_vector(from, (v * 32 * WARPS + lane) * LANE, width);
  float largest = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) largest = fmaxf(largest, largest_of(kept[v]));
  largest = row_maximum<WARPS>(largest, scratch);
  if (!inside) return;
  const int power = power_for(largest);
  const float by = power_of_two(power);
  if (lane == 0) scales[row] = scale_for(largest, power);
  u8* const to = y + (i64)row * width;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int at = (v * 32 * WARPS + lane) * LANE;
    if (at >= width) continue;
    store_float8(to + at, kept[v], by);
  }
}

// The same of rows that registers do not hold: a block takes one and reads it twice.
extern "C" __global__ void __launch_bounds__(1024) float8_long_rows(u8* y, float* scales, const Element* x, int width) {
  __shared__ float scratch[32];
  const Element* const from = x + (i64)blockIdx.x * width;
  float largest = 0;
#pragma unroll 4
  for (int at = threadIdx.x * LANE; at < width; at += 1024 * LANE) {
    largest = fmaxf(largest, largest_of(load_vector(from, at, width)));
  }
  largest = row_maximum<32>(largest, scratch);
  const int power = power_for(largest);
  const float by = power_of_two(power);
  if (threadIdx.x == 0) scales[blockIdx.x] = scale_for(largest, power);
  u8* const to = y + (i64)blockIdx.x * width;
#pragma unroll 4
  for (int at = threadIdx.x * LANE; at < width; at += 1024 * LANE) {
    store_float8(to + at, load_vector(from, at, width), by);
  }
}

// largest[part][column] over rows_of_part neighbouring rows. A thread has a vector of columns; SLOTS of them share it.
#define SLOTS 8
extern "C" __global__ void __launch_bounds__(32 * SLOTS)
    float8_largest(float* largest, const Element* x, int rows, int width, int rows_of_part) {
  __shared__ float shared[SLOTS][32][LANE + 1];
  const int lane = threadIdx.x & 31, slot = threadIdx.x >> 5;
  const int at = (blockIdx.x * 32 + lane) * LANE;
  const int begin = blockIdx.y * rows_of_part, end = min(begin + rows_of_part, rows);
  float most[LANE];
#pragma unroll
  for (int j = 0; j < LANE; ++j) most[j] = 0;
  // Eight rows under way at a time; beyond the end one that was there.
  for (int row = begin + slot; row < end; row += 8 * SLOTS) {
    uint4 kept[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) kept[i] = load_vector(x + (i64)min(row + i * SLOTS, end - 1) * width, at, width);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float a[LANE];
      widen(kept[i], a);
#pragma unroll
      for (int j = 0; j < LANE; ++j) most[j] = fmaxf(most[j], fabsf(a[j]));
    }
  }
#pragma unroll
  for (int j = 0; j < LANE; ++j) shared[slot][lane][j] = most[j];
  __syncthreads();
  const int column = blockIdx.x * 32 * LANE + threadIdx.x;
  if (threadIdx.x >= 32 * LANE || column >= width) return;
  float all = 0;
#pragma unroll
  for (int s = 0; s < SLOTS; ++s) all = fmaxf(all, shared[s][threadIdx.x / LANE][threadIdx.x % LANE]);
  largest[(i64)blockIdx.y * width + column] = all;
}

// y [width, rows] = x^T, rounded by the largest of all parts. A block of 256 turns a tile of 64 rows and 64 columns.
#define TILE 64
extern "C" __global__ void __launch_bounds__(256)
    float8_turned(u8* y, float* scales, const float* largest, int parts, const Element* x, int rows, int width) {
  __shared__ __align__(16) u8 tile[TILE][TILE + 4];  // [column][row]: rows of it lie 17 banks apart
  __shared__ float by[TILE];
  const int first_column = blockIdx.x * TILE, first_row = blockIdx.y * TILE;
  if (threadIdx.x < TILE && first_column + threadIdx.x < width) {
    const int column = first_column + threadIdx.x;
    float all = 0;
    for (int p = 0; p < parts; ++p) all = fmaxf(all, largest[(i64)p * width + column]);
    const int power = power_for(all);
    by[threadIdx.x] = power_of_two(power);
    if (blockIdx.y == 0) scales[column] = scale_for(all, power);
  }
  __syncthreads();
  // A thread takes LANE columns of four neighbouring rows, so that it writes words to shared memory.
  for (int part = threadIdx.x; part < TILE / 4 * (TILE / LANE); part += 256) {
    const int column = part % (TILE / LANE) * LANE, row = part / (TILE / LANE) * 4;
    if (first_row + row >= rows || first_column + column >= width) continue;
    float a[4][LANE];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      widen(load_vector(x + (i64)(first_row + row + i) * width, first_column + column, width), a[i]);
    }
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const float factor = by[column + j];
      *reinterpret_cast<u32*>(&tile[column + j][row]) =
          pack_float8(a[0][j] * factor, a[1][j] * factor, a[2][j] * factor, a[3][j] * factor);
    }
  }
  __syncthreads();
  // Sixteen rows of x, 16 bytes of y, a thread.
  const int column = threadIdx.x / 4, row = threadIdx.x % 4 * 16;
  if (first_row + row >= rows || first_column + column >= width) return;
  const u32* const from = reinterpret_cast<const u32*>(&tile[column][row]);
  *reinterpret_cast<uint4*>(y + (i64)(first_column + column) * rows + first_row + row) =
      make_uint4(from[0], from[1], from[2], from[3]);
}
