// variant ELEMENT=0 ALIGNED=1: at most 72 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Rows of embedding tables. An id that no table entry has gives NaN, which the step's watch reports.

// One table with the ids of tokens 0 to num_ids - 1, which repeat. The table may be cut: it has `entries` from `first`
// on of `all_entries`.
struct Lookup {
  const Element* table;
  const i64* ids;
  i64 first, entries, all_entries;
  u32 num_ids;
  Divisor by_ids;
};
#define TABLES 3
struct Lookups {
  Lookup of[TABLES];
  int count;
};

// out[token] = the sum of the rows table[ids[token] - first], each 0 where another rank holds the entry; added one
// after the other, rounded in between. A block takes TOKENS neighbours.
#define TOKENS 2  // of a block: their rows are under way together
extern "C" __global__ void __launch_bounds__(256) look_up(Element* out, Lookups lookups, int tokens, int width) {
  // All ids are under way together. Absent tables have one, which is read from the first.
  i64 ids[TABLES][TOKENS];
#pragma unroll
  for (int k = 0; k < TABLES; ++k) {
    const Lookup& lookup = lookups.of[k];
    const i64* const from = k < lookups.count ? lookup.ids : lookups.of[0].ids;
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      const u32 token = min(blockIdx.x * TOKENS + t, tokens - 1);
      ids[k][t] = from[token - divided(token, lookup.by_ids) * lookup.num_ids];
    }
  }
  int places[TABLES][TOKENS];  // of rows in their tables; -1: none here
  u32 unknown = 0;
#pragma unroll
  for (int k = 0; k < TABLES; ++k) {
    const Lookup& lookup = lookups.of[k];
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      const i64 place = ids[k][t] - lookup.first;
      if (k < lookups.count && (u64)ids[k][t] >= (u64)lookup.all_entries) unknown |= 1u << t;
      places[k][t] = (u64)place < (u64)lookup.entries ? (int)place : -1;
    }
  }
  for (int at = threadIdx.x * LANE; at < width; at += blockDim.x * LANE) {
    uint4 rows[TABLES][TOKENS];
#pragma unroll
    for (int k = 0; k < TABLES; ++k) {
#pragma unroll
      for (int t = 0; t < TOKENS; ++t) {
        const Element* const row = lookups.of[k].table + (i64)places[k][t] * width;
        rows[k][t] = load_vector(row, at, places[k][t] < 0 ? 0 : width);
      }
    }
#pragma unroll
    for (int t = 0; t < TOKENS; ++t) {
      const int token = blockIdx.x * TOKENS + t;
      if (token >= tokens) break;
      float x[LANE];
      widen(rows[0][t], x);
#pragma unroll
      for (int k = 1; k < TABLES; ++k) {
        if (k >= lookups.count) break;
        float addend[LANE];
        widen(rows[k][t], addend);
        round_all(x);
#pragma unroll
        for (int j = 0; j < LANE; ++j) x[j] = __fadd_rn(x[j], addend[j]);
      }
#pragma unroll
      for (int j = 0; j < LANE; ++j) x[j] = unknown >> t & 1u ? __int_as_float(0x7fffffff) : x[j];
      store_vector(out + (i64)token * width, at, width, narrow(x));
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
