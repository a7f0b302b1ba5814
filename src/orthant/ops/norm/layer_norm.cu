// variant ELEMENT=0 ALIGNED=1 VECTORS=3 WARPS=1 PARTS=7: at most 168 registers
// variant ELEMENT=1 ALIGNED=1 VECTORS=4 WARPS=4 PARTS=7: at most 240 registers
// variant ELEMENT=0 ALIGNED=1 VECTORS=3 WARPS=16 PARTS=7: at most 128 registers
// variant ELEMENT=2 ALIGNED=0 VECTORS=4 WARPS=8 PARTS=7: at most 208 registers
// variant ELEMENT=0 ALIGNED=1 VECTORS=3 WARPS=1 PARTS=7 UNPADDED=1: at most 168 registers
// all ELEMENT=0,1,2 ALIGNED=0,1 VECTORS=1,2,3,4 WARPS=1,2,4,8,16 PARTS=1,2,3,5,7 UNPADDED=0,1
//
// LayerNorm over rows of `width` elements, with the dropout and the residual sum in front of it. A row lies in the
// registers of WARPS warps, VECTORS vectors a lane. A block is 4 * 32 threads or WARPS * 32, whichever is more. Sums
// are float32; per row and per column they have one order. What parts would store between them is rounded in between.
#define THREADS (WARPS > 4 ? 32 * WARPS : 128)
#define ROWS (THREADS / (32 * WARPS))  // of a block at a time
#define TOGETHER (THREADS == 128 ? VECTORS : 1)
// Blocks of a backward of an SM at a time, at least, and whether it loads the residual with the row: as far as threads
// have registers. See layer_blocks().
#define MANY (VECTORS <= 3 && !(PARTS == 7 && __CUDA_ARCH__ >= 1000))
#define FEW (VECTORS == 4 && PARTS == 7 && __CUDA_ARCH__ >= 1000)
#define BLOCKS (!ALIGNED || THREADS != 128 ? 1 : MANY ? 4 : FEW ? 2 : 3)
#define KEEPS_RESIDUAL (WARPS <= 8 && !(VECTORS == 3 && PARTS == 7 && WARPS > 1))
// Whether it loads a row's vectors as soon as those of the row before were used, where that takes no more registers.
#define LOADS_AHEAD (ELEMENT == 0 && ALIGNED && WARPS == 1 && __CUDA_ARCH__ < 1000)

// Whether element j of a vector at `at` lies in the row.
DEVICE bool in_row(int at, int j, int width) {
  return ALIGNED ? at < width : at + j < width;
}

// sum = residual + dropout(x), where there is a residual, and x else; y = (sum - mean) rstd weight + bias;
// statistics[row] = mean, rstd = 1 / sqrt(variance + eps).
extern "C" __global__ void __launch_bounds__(THREADS)
    layer_forward(Element* y, float* statistics, Element* sums, const Element* x, const Element* residual,
                  const Element* weight, const Element* bias, int rows, int width, float eps, KeyedGrid grid) {
  __shared__ float scratch[THREADS / 32];
  const int lane = threadIdx.x % (32 * WARPS);
  const int row = blockIdx.x * ROWS + threadIdx.x / (32 * WARPS);
  const bool inside = row < rows;
  const i64 first = (i64)(inside ? row : 0) * width;
  uint4 kept[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) kept[v] = load_vector(x + first, (v * 32 * WARPS + lane) * LANE, width);
  if (residual != nullptr) {
    uint4 addends[VECTORS];
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) addends[v] = load_vector(residual + first, (v * 32 * WARPS + lane) * LANE, width);
    const u64 block = block_of_row(grid, row);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = (v * 32 * WARPS + lane) * LANE;
      float a[LANE], r[LANE];
      widen(kept[v], a);
      widen(addends[v], r);
      if (grid.threshold != 0) widen(dropped_vector(grid, block, at, a), a);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fadd_rn(r[j], a[j]);
      kept[v] = narrow(a);
      if (inside) store_vector(sums + first, at, width, kept[v]);
    }
  }
  float sum = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE];
    widen(kept[v], a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) sum += a[j];
  }
  const float mean = row_sum<WARPS>(sum, scratch) / (float)width;
  sum = 0;
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int at = (v * 32 * WARPS + lane) * LANE;
    float a[LANE];
    widen(kept[v], a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const float centred = in_row(at, j, width) ? a[j] - mean : 0.0f;
      sum = fmaf(centred, centred, sum);
    }
  }
  const float rstd = rsqrtf(row_sum<WARPS>(sum, scratch) / (float)width + eps);
  if (!inside) return;
  if (lane == 0) *reinterpret_cast<float2*>(statistics + 2 * (i64)row) = make_float2(mean, rstd);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const int at = (v * 32 * WARPS + lane) * LANE;
    float a[LANE], w[LANE], b[LANE];
    widen(kept[v], a);
    widen(load_vector(weight, at, width), w);
    widen(load_vector(bias, at, width), b);
#pragma unroll
    for (int j = 0; j < LANE; ++j) a[j] = fmaf((a[j] - mean) * rstd, w[j], b[j]);
    store_vector(y + first, at, width, narrow(a));
  }
}

// PARTS & 1: gx = rstd (g - mean(g) - n mean(g n)) with n = (x - mean) rstd, g = gy weight; `residual`, where not null,
// is added to the rounded result. PARTS & 4, only with 1: dropped = gx times the grid's factors. PARTS & 2:
// sums[0][block] of gy n and sums[1][block] of gy over the block's rows, in increasing order for each of its ROWS
// slots, slots added in order. How many blocks there are follows from the rows, so sums do not depend on the card.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    layer_backward(Element* gx, Element* dropped, float* sums, const Element* gy, const Element* x,
                   const float* statistics, const Element* weight, const Element* residual, int rows, int width,
                   KeyedGrid grid) {
  __shared__ float scratch[THREADS / 32];
  const int lane = threadIdx.x % (32 * WARPS);
  const int slot = threadIdx.x / (32 * WARPS);
  const Rows own = own_rows(rows);
  const int begin = own.begin, end = own.end;
#if PARTS & 2
  float columns[2][VECTORS][LANE];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
#pragma unroll
    for (int j = 0; j < LANE; ++j) columns[0][v][j] = columns[1][v][j] = 0;
  }
#endif
  uint4 kept_g[VECTORS], kept_x[VECTORS];
#if PARTS & 1 && KEEPS_RESIDUAL
  uint4 kept_r[VECTORS];
#endif
  float2 moments;
  const auto load_moments = [&](int row) { moments = *reinterpret_cast<const float2*>(statistics + 2 * (i64)row); };
  const auto load = [&](int row, int v) {
    const i64 first = (i64)row * width;
    const int at = (v * 32 * WARPS + lane) * LANE;
    kept_g[v] = load_vector(gy + first, at, width);
    kept_x[v] = load_vector(x + first, at, width);
#if PARTS & 1 && KEEPS_RESIDUAL
    if (residual != nullptr) kept_r[v] = load_vector(residual + first, at, width);
#endif
  };
  const auto load_row = [&](int row) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) load(row, v);
    load_moments(row);
  };
#if LOADS_AHEAD
  load_row(begin + slot < end ? begin + slot : begin);
#endif
  for (int from = begin; from < end; from += ROWS) {
    const bool inside = from + slot < end;
    const int row = inside ? from + slot : begin;
    const i64 first = (i64)row * width;
#if !LOADS_AHEAD
    load_row(row);
#endif
    const float mean = moments.x, rstd = moments.y;
#if PARTS & 1
    float sum = 0, dot = 0;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      float a[LANE], g[LANE], w[LANE];
      widen(kept_x[v], a);
      widen(kept_g[v], g);
      widen(load_vector(weight, (v * 32 * WARPS + lane) * LANE, width), w);
#pragma unroll
      for (int j = 0; j < LANE; ++j) {
        const float scaled = g[j] * w[j];
        sum += scaled;
        dot = fmaf(scaled, a[j] - mean, dot);
      }
    }
    const float mean_g = row_sum<WARPS>(sum, scratch) * fast_reciprocal((float)width);
    const float mean_gn = row_sum<WARPS>(dot, scratch) * rstd / (float)width;
#endif
#if LOADS_AHEAD
    if (row + ROWS < end) load_moments(row + ROWS);
#endif
    if (!inside) continue;
#if PARTS & 4
    const u64 block = block_of_row(grid, row);
#endif
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = (v * 32 * WARPS + lane) * LANE;
      float a[LANE], g[LANE];
      widen(kept_x[v], a);
      widen(kept_g[v], g);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = (a[j] - mean) * rstd;
#if LOADS_AHEAD && !(PARTS & 1)
      if (row + ROWS < end) load(row + ROWS, v);
#endif
#if PARTS & 2
#pragma unroll
      for (int j = 0; j < LANE; ++j) {
        columns[0][v][j] = fmaf(g[j], a[j], columns[0][v][j]);
        columns[1][v][j] += g[j];
      }
#endif
#if PARTS & 1
      float w[LANE];
      widen(load_vector(weight, at, width), w);
#pragma unroll
      for (int j = 0; j < LANE; ++j) g[j] = rstd * (fmaf(g[j], w[j], -mean_g) - a[j] * mean_gn);
      if (residual != nullptr) {
        float r[LANE];
#if KEEPS_RESIDUAL
        widen(kept_r[v], r);
#else
        widen(load_vector(residual + first, at, width), r);
#endif
        round_all(g);
#pragma unroll
        for (int j = 0; j < LANE; ++j) g[j] = __fadd_rn(r[j], g[j]);
      }
#if LOADS_AHEAD
      if (row + ROWS < end) load(row + ROWS, v);
#endif
      const uint4 result = narrow(g);
      store_vector(gx + first, at, width, result);
#if PARTS & 4
      uint4 kept_result = result;
      if (grid.threshold != 0) {
        widen(result, g);
        kept_result = dropped_vector(grid, block, at, g);
      }
      store_vector(dropped + first, at, width, kept_result);
#endif
#endif
    }
  }
#if PARTS & 2
  // Slots hand their sums on through shared memory, TOGETHER vectors of columns at a time.
  __shared__ float shared[ROWS][TOGETHER * 32 * WARPS][LANE + 1];
#pragma unroll
  for (int s = 0; s < 2; ++s) {
#pragma unroll
    for (int first = 0; first < VECTORS; first += TOGETHER) {
      __syncthreads();
#pragma unroll
      for (int v = 0; v < TOGETHER; ++v) {
#pragma unroll
        for (int j = 0; j < LANE; ++j) shared[slot][v * 32 * WARPS + lane][j] = columns[s][first + v][j];
      }
      __syncthreads();
#pragma unroll 2
      for (int i = threadIdx.x; i < TOGETHER * 32 * WARPS * LANE; i += THREADS) {
        const int at = first * 32 * WARPS * LANE + i;
        float sum = 0;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) sum += shared[r][i / LANE][i % LANE];
        if (at < width) sums[((i64)s * gridDim.x + blockIdx.x) * width + at] = sum;
      }
    }
  }
#endif
}
