// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Dropout of x [rows, width], alone or added to a residual. A thread takes VECTORS vectors, a block's threads apart.
#define THREADS 256
#define VECTORS 2

// out = residual (where not null) + dropout(x), rounded in between.
extern "C" __global__ void __launch_bounds__(THREADS)
    dropout_add(Element* out, const Element* x, const Element* residual, Vectors all, KeyedGrid grid) {
  const u32 begin = blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
  uint4 kept[VECTORS], addends[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    kept[v] = load_vector(x, all, begin + v * THREADS);
    if (residual != nullptr) addends[v] = load_vector(residual, all, begin + v * THREADS);
  }
  float factors[VECTORS][LANE];
  if (grid.threshold != 0) draw_vectors(grid, all, begin, THREADS, factors);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE], r[LANE];
    if (grid.threshold != 0) {
      widen(kept[v], a);
      kept[v] = dropped_vector(factors[v], a);
    }
    if (residual != nullptr) {
      widen(kept[v], a);
      widen(addends[v], r);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fadd_rn(r[j], a[j]);
      kept[v] = narrow(a);
    }
    store_vector(out, all, begin + v * THREADS, kept[v]);
  }
}
