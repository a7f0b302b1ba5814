// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Rows of embedding tables. An id that no table entry has gives NaN, which the step's watch reports.

// out[token] = table[ids[token % num_ids] - first], or 0 where the table is cut and another rank holds the entry;
// added to what lies there, rounded in between, when `adds` is set. `all_entries` counts those of every rank. A block
// takes TOKENS neighbours.
#define TOKENS 4  // of a block: their rows are under way together
extern "C" __global__ void __launch_bounds__(256)
    look_up(Element* out, const Element* table, const i64* ids, int num_ids, i64 first, i64 entries, i64 all_entries,
            int tokens, int width, int adds) {
  i64 place[TOKENS];
  bool known[TOKENS], held[TOKENS];
#pragma unroll
  for (int t = 0; t < TOKENS; ++t) {
    const int token = min(blockIdx.x * TOKENS + t, tokens - 1);
    const i64 id = ids[token % num_ids];
    known[t] = id >= 0 && id < all_entries;
    place[t] = id - first;
    held[t] = known[t] && place[t] >= 0 && place[t] < entries;
  }
  for (int at = threadIdx.x * LANE; at < width; at += blockDim.x * LANE) {
    uint4 rows[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      rows[t] = load_vector(table + (held[t] ? place[t] : 0) * width, at, held[t] ? width : 0);
    }
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      const int token = blockIdx.x * TOKENS + t;
      if (token >= tokens) break;
      Element* to = out + (i64)token * width;
      float x[LANE];
      widen(rows[t], x);
      if (!known[t]) {
#pragma unroll
        for (int j = 0; j < LANE; ++j) x[j] = __int_as_float(0x7fffffff);
      }
      if (adds) {
        float sum[LANE];
        widen(load_vector(to, at, width), sum);
#pragma unroll
        for (int j = 0; j < LANE; ++j) x[j] += sum[j];
      }
      store_vector(to, at, width, narrow(x));
    }
  }
}

// gradient[id - first] += gy[token] for every token of that id, in the order of tokens. `ids` are sorted, and order[i]
// is the token of ids[i]. A block takes one place of that list, and does nothing unless a run of equal ids begins
// there.
extern "C" __global__ void __launch_bounds__(256, 4)
    add_rows(float* gradient, const Element* gy, const i64* ids, const i64* order, int tokens, i64 first, i64 entries,
             int width) {
  const int begin = blockIdx.x;
  const i64 id = ids[begin];
  if (begin > 0 && ids[begin - 1] == id) return;
  const i64 place = id - first;
  if (place < 0 || place >= entries) return;
  int end = begin + 1;
  while (end < tokens && ids[end] == id) ++end;
  for (int at = threadIdx.x * LANE; at < width; at += blockDim.x * LANE) {
    float* to = gradient + place * width + at;
    float sum[LANE];
#pragma unroll
    for (int j = 0; j < LANE; ++j) sum[j] = at + j < width ? to[j] : 0.0f;
    for (int i = begin; i < end; ++i) {
      float x[LANE];
      widen(load_vector(gy + order[i] * width, at, width), x);
#pragma unroll
      for (int j = 0; j < LANE; ++j) sum[j] += x[j];
    }
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      if (at + j < width) to[j] = sum[j];
    }
  }
}
