// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Dropout of x [rows, width], alone or added to a residual. A thread takes VECTORS vectors, a block's threads apart.
#define THREADS 256
#define VECTORS 2

// out = residual (where not null) + dropout(x), rounded in between.
extern "C" __global__ void __launch_bounds__(THREADS)
    dropout_add(Element* out, const Element* x, const Element* residual, u32 vectors, int width, Grid grid) {
  const u32 row_vectors = (u32)(width + LANE - 1) / LANE;
  const u32 begin = blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
  u32 row[VECTORS];
  int at[VECTORS];
  uint4 kept[VECTORS], addends[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    const u32 index = begin + v * THREADS;
    row[v] = min(index, vectors - 1) / row_vectors;
    at[v] = index < vectors ? (int)(index - row[v] * row_vectors) * LANE : width;
    kept[v] = load_vector(x + (i64)row[v] * width, at[v], width);
    addends[v] =
        residual == nullptr ? make_uint4(0, 0, 0, 0) : load_vector(residual + (i64)row[v] * width, at[v], width);
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE];
    widen(kept[v], a);
    if (grid.threshold != 0) drop(grid, stream_index(grid, (int)row[v]) + at[v], a);
    if (residual != nullptr) {
      float r[LANE];
      widen(addends[v], r);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fadd_rn(r[j], a[j]);
    }
    store_vector(out + (i64)row[v] * width, at[v], width, narrow(a));
  }
}
