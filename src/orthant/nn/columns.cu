// variant ELEMENT=2: at most 40 registers
//
// Sums over the rows of a matrix in a fixed order: a block takes 32 columns; row r is added by slot r % 32, and the
// slots' sums are added in order.
extern "C" __global__ void __launch_bounds__(1024) sum_columns(float* out, const Element* x, int rows, int width) {
  __shared__ float sums[32][33];
  const int lane = threadIdx.x & 31, slot = threadIdx.x >> 5;
  const int column = blockIdx.x * 32 + lane;
  float sum = 0;
  if (column < width) {
#pragma unroll 8
    for (int row = slot; row < rows; row += 32) sum += widened(x[(i64)row * width + column]);
  }
  sums[slot][lane] = sum;
  __syncthreads();
  if (slot != 0 || column >= width) return;
  float total = 0;
#pragma unroll
  for (int s = 0; s < 32; ++s) total += sums[s][lane];
  out[column] = total;
}
