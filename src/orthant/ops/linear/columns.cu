// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Sums over the rows of a matrix in a fixed order, in two stages where there are many rows.

#define SLOTS 8  // warps of a block

// sums[part][column] over rows_of_part neighbours: a block takes 32 vectors of columns, its warp s the rows s,
// s + SLOTS, ... of the part, and the warps' sums are added in order.
extern "C" __global__ void __launch_bounds__(32 * SLOTS, 4)
    sum_parts(float* sums, const Element* x, int rows, int width, int rows_of_part) {
  __shared__ float shared[SLOTS][32][LANE + 1];
  const int lane = threadIdx.x & 31, slot = threadIdx.x >> 5;
  const int at = (blockIdx.x * 32 + lane) * LANE;
  const int begin = blockIdx.y * rows_of_part, end = min(begin + rows_of_part, rows);
  float sum[LANE];
#pragma unroll
  for (int j = 0; j < LANE; ++j) sum[j] = 0;
  int row = begin + slot;
  // Eight rows under way at a time, added one after the other.
  for (; row + 7 * SLOTS < end; row += 8 * SLOTS) {
    uint4 kept[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) kept[i] = load_vector(x + (i64)(row + i * SLOTS) * width, at, width);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float a[LANE];
      widen(kept[i], a);
#pragma unroll
      for (int j = 0; j < LANE; ++j) sum[j] += a[j];
    }
  }
  for (; row < end; row += SLOTS) {
    float a[LANE];
    widen(load_vector(x + (i64)row * width, at, width), a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) sum[j] += a[j];
  }
  let_next_begin();
#pragma unroll
  for (int j = 0; j < LANE; ++j) shared[slot][lane][j] = sum[j];
  __syncthreads();
  const int column = blockIdx.x * 32 * LANE + threadIdx.x;
  if (threadIdx.x >= 32 * LANE || column >= width) return;
  float total = 0;
#pragma unroll
  for (int s = 0; s < SLOTS; ++s) total += shared[s][threadIdx.x / LANE][threadIdx.x % LANE];
  sums[(i64)blockIdx.y * width + column] = total;
}

// A matrix [rows, width] and where its sums go: out (+)= them.
struct Columns {
  float* out;
  const Element* x;
  int adds;
};

// A block of N threads takes ACROSS vectors of columns of one of the matrices. Row r is added by slot r % (N / ACROSS),
// slots of a warp are added in pairs, and the warps' sums in order. It may begin before the kernel that writes the
// matrices ends, and what wrote `out` has ended before that one begins.
#define ACROSS 4
extern "C" __global__ void __launch_bounds__(1024) sum_columns(Columns first, Columns second, int rows, int width) {
  __shared__ float sums[32][ACROSS * LANE];
  const Columns matrix = blockIdx.y == 0 ? first : second;
  const int lane = threadIdx.x % ACROSS, tall = blockDim.x / ACROSS;
  const int at = (blockIdx.x * ACROSS + lane) * LANE;
  const int column = blockIdx.x * ACROSS * LANE + threadIdx.x;
  const bool writes = threadIdx.x < ACROSS * LANE && column < width;
  const float before = writes && matrix.adds ? matrix.out[column] : 0.0f;
  float sum[LANE];
#pragma unroll
  for (int j = 0; j < LANE; ++j) sum[j] = 0;
  await_previous();
  // Four rows are under way at a time, also where there are no more.
  for (int row = threadIdx.x / ACROSS; row < rows; row += 4 * tall) {
    uint4 kept[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      kept[i] = make_uint4(0, 0, 0, 0);
      if (row + i * tall < rows) kept[i] = load_vector(matrix.x + (i64)(row + i * tall) * width, at, width);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float a[LANE];
      widen(kept[i], a);
#pragma unroll
      for (int j = 0; j < LANE; ++j) sum[j] += a[j];
    }
  }
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
#pragma unroll
    for (int offset = 16; offset >= ACROSS; offset >>= 1) sum[j] += __shfl_xor_sync(~0u, sum[j], offset);
    if ((threadIdx.x & 31) < ACROSS) sums[threadIdx.x >> 5][lane * LANE + j] = sum[j];
  }
  __syncthreads();
  if (!writes) return;
  float total = 0;
#pragma unroll 8
  for (int s = 0; s < blockDim.x / 32; ++s) total += sums[s][threadIdx.x];
  matrix.out[column] = matrix.adds ? before + total : total;
}
