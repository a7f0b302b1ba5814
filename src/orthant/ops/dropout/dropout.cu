// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// variant ELEMENT=0 ALIGNED=1 UNPADDED=1: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1 UNPADDED=0,1
//
// Dropout of x [rows, width], alone or added to a residual. A thread takes a pair of vectors.
#define THREADS 256

// out = residual (where not null) + dropout(x), rounded in between.
extern "C" __global__ void __launch_bounds__(THREADS)
    dropout_add(Element* out, const Element* x, const Element* residual, Vectors all, KeyedGrid grid) {
  const Pair pair = own_pair(all);
  uint4 kept[2], addends[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    kept[v] = load_vector(x, all, pair, v);
    if (residual != nullptr) addends[v] = load_vector(residual, all, pair, v);
  }
  Draw draws[2];
  if (grid.threshold != 0) draw_pair(grid, all, pair, draws);
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float a[LANE], r[LANE];
    if (grid.threshold != 0) {
      widen(kept[v], a);
      kept[v] = dropped_vector(grid, draws[v], a);
    }
    if (residual != nullptr) {
      widen(kept[v], a);
      widen(addends[v], r);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fadd_rn(r[j], a[j]);
      kept[v] = narrow(a);
    }
    store_vector(out, all, pair, v, kept[v]);
  }
}
