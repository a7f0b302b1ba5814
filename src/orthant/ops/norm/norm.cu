// variant ELEMENT=0 ALIGNED=1 VECTORS=2 WARPS=4 PARTS=3: at most 80 registers
// variant ELEMENT=2 ALIGNED=0 VECTORS=2 WARPS=32 PARTS=3: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1 VECTORS=1,2 WARPS=1,2,4,8,16,32 PARTS=1,2,3
//
// RMSNorm over rows of `width` elements, each kept in the registers of WARPS warps with VECTORS vectors a lane. A block
// is 4 * 32 threads or WARPS * 32, whichever is more. Sums are float32; per row and per column they have one order.
#define THREADS (WARPS > 4 ? 32 * WARPS : 128)
#define ROWS (THREADS / (32 * WARPS))  // of a block at a time

// y = x * rstd * weight; statistics[row] = rstd = 1 / sqrt(mean(x^2) + eps).
extern "C" __global__ void __launch_bounds__(THREADS)
    rms_forward(Element* y, float* statistics, const Element* x, const Element* weight, int rows, int width,
                float eps) {
  __shared__ float scratch[THREADS / 32];
  const int lane = threadIdx.x % (32 * WARPS);
  const int row = blockIdx.x * ROWS + threadIdx.x / (32 * WARPS);
  const bool inside = row < rows;
  const Element* from = x + (i64)(inside ? row : 0) * width;
  uint4 kept[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) kept[v] = load_vector(from, (v * 32 * WARPS + lane) * LANE, width);
  float sum = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE];
    widen(kept[v], a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) sum += a[j] * a[j];
  }
  sum = row_sum<WARPS>(sum, scratch);
  const float rstd = rsqrtf(sum / (float)width + eps);
  if (!inside) return;
  if (lane == 0) statistics[row] = rstd;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int at = (v * 32 * WARPS + lane) * LANE;
    float a[LANE], w[LANE];
    widen(kept[v], a);
    widen(load_vector(weight, at, width), w);
#pragma unroll
    for (int j = 0; j < LANE; ++j) a[j] = a[j] * rstd * w[j];
    store_vector(y + (i64)row * width, at, width, narrow(a));
  }
}

// PARTS & 1: gx = rstd (g - n mean(g n)) with n = x rstd, g = gy weight; `residual`, where not null, is added to the
// rounded result. PARTS & 2: sums[block][width] of gy n over the block's rows, in increasing order for each of its ROWS
// slots, slots added in order. How many blocks there are follows from the rows, so sums do not depend on the card.
extern "C" __global__ void __launch_bounds__(THREADS)
    rms_backward(Element* gx, float* sums, const Element* gy, const Element* x, const float* statistics,
                 const Element* weight, const Element* residual, int rows, int width) {
  __shared__ float scratch[THREADS / 32];
  const int lane = threadIdx.x % (32 * WARPS);
  const int slot = threadIdx.x / (32 * WARPS);
  const Rows own = own_rows(rows);
  const int begin = own.begin, end = own.end;
#if PARTS & 2
  float column[VECTORS][LANE];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
#pragma unroll
    for (int j = 0; j < LANE; ++j) column[v][j] = 0;
  }
#endif
  for (int first = begin; first < end; first += ROWS) {
    const bool inside = first + slot < end;
    const i64 row = inside ? first + slot : begin;
    uint4 kept_g[VECTORS], kept_x[VECTORS];
#if PARTS & 1
    uint4 kept_r[VECTORS];
#endif
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = (v * 32 * WARPS + lane) * LANE;
      kept_g[v] = load_vector(gy + row * width, at, width);
      kept_x[v] = load_vector(x + row * width, at, width);
#if PARTS & 1
      kept_r[v] = residual == nullptr ? make_uint4(0, 0, 0, 0) : load_vector(residual + row * width, at, width);
#endif
    }
    const float rstd = statistics[row];
#if PARTS & 1
    float dot = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      float a[LANE], g[LANE], w[LANE];
      widen(kept_x[v], a);
      widen(kept_g[v], g);
      widen(load_vector(weight, (v * 32 * WARPS + lane) * LANE, width), w);
#pragma unroll
      for (int j = 0; j < LANE; ++j) dot += g[j] * w[j] * (a[j] * rstd);
    }
    const float mean = row_sum<WARPS>(dot, scratch) / (float)width;
#endif
    if (inside) {
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        const int at = (v * 32 * WARPS + lane) * LANE;
        float a[LANE], g[LANE];
        widen(kept_x[v], a);
        widen(kept_g[v], g);
#if PARTS & 2
#pragma unroll
        for (int j = 0; j < LANE; ++j) column[v][j] += g[j] * (a[j] * rstd);
#endif
#if PARTS & 1
        float w[LANE];
        widen(load_vector(weight, at, width), w);
#pragma unroll
        for (int j = 0; j < LANE; ++j) g[j] = (g[j] * w[j] - a[j] * rstd * mean) * rstd;
        if (residual != nullptr) {
          float r[LANE];
          widen(kept_r[v], r);
#pragma unroll
          for (int j = 0; j < LANE; ++j) g[j] = r[j] + rounded(g[j]);
        }
        store_vector(gx + row * width, at, width, narrow(g));
#endif
      }
    }
  }
#if PARTS & 2
  // Slots hand their sums on through shared memory, one vector of columns after the other.
  __shared__ float shared[ROWS][32 * WARPS][LANE];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < LANE; ++j) shared[slot][lane][j] = column[v][j];
    __syncthreads();
    if (slot == 0) {
#pragma unroll
      for (int j = 0; j < LANE; ++j) {
        const int at = (v * 32 * WARPS + lane) * LANE + j;
        float sum = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum += shared[r][lane][j];
        if (at < width) sums[(i64)blockIdx.x * width + at] = sum;
      }
    }
  }
#endif
}
