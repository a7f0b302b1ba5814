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

// Backward: `ids` are sorted, and order[i] is the token of ids[i], so that the rows of an id are a run of the list. A
// block adds at most PART of them, up to the next multiple of PART; runs that end there are complete, parts of the
// others are joined in their order. A table of padded texts has runs of thousands.
#define PART 64

// sum += the rows of places [begin, end) of the list, in their order.
DEVICE void add_listed(float (&sum)[LANE], const Element* gy, const i64* order, int begin, int end, int at, int width) {
  constexpr int kAtOnce = 4;  // rows under way
  for (int i = begin; i < end; i += kAtOnce) {
    uint4 rows[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) rows[k] = load_vector(gy + order[min(i + k, end - 1)] * width, at, width);
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      if (i + k == end) break;
      float x[LANE];
      widen(rows[k], x);
#pragma unroll
      for (int j = 0; j < LANE; ++j) sum[j] += x[j];
    }
  }
}

// gradient[id - first] += gy[token] for every token of an id whose run lies between two multiples of PART. Of other
// runs each part's sum goes to `parts` [2 for each PART places, width]: to row 2c where it begins at place c PART, to
// 2c + 1 where it begins behind it. A block takes one place, and does nothing unless a run or a part begins there.
extern "C" __global__ void __launch_bounds__(256, 4)
    add_rows(float* gradient, float* parts, const Element* gy, const i64* ids, const i64* order, int tokens, i64 first,
             i64 entries, int width) {
  const int begin = blockIdx.x;
  const i64 id = ids[begin];
  const bool begins = begin == 0 || ids[begin - 1] != id;
  if (!begins && begin % PART != 0) return;
  const i64 place = id - first;
  if (place < 0 || place >= entries) return;
  const int border = min((begin / PART + 1) * PART, tokens);
  int end = begin + 1;
  while (end < border && ids[end] == id) ++end;
  const bool complete = begins && (end < border || border == tokens || ids[border] != id);
  float* const row =
      complete ? gradient + place * width : parts + (i64)(begin / PART * 2 + (begin % PART != 0)) * width;
  for (int at = threadIdx.x * LANE; at < width; at += blockDim.x * LANE) {
    float sum[LANE];
#pragma unroll
    for (int j = 0; j < LANE; ++j) sum[j] = complete && at + j < width ? row[at + j] : 0.0f;
    add_listed(sum, gy, order, begin, end, at, width);
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      if (at + j < width) row[at + j] = sum[j];
    }
  }
}

// gradient[id - first] += the parts of a run, which crosses the multiple of PART behind this block's PART places and
// begins among them; every other block does nothing.
extern "C" __global__ void __launch_bounds__(256, 4)
    add_parts(float* gradient, const float* parts, const i64* ids, int tokens, i64 first, i64 entries, int width) {
  const int begin = blockIdx.x * PART, border = begin + PART;
  if (border >= tokens || ids[border - 1] != ids[border]) return;
  const i64 id = ids[border];
  const bool from_border = ids[begin] == id;
  if (from_border && begin > 0 && ids[begin - 1] == id) return;
  const i64 place = id - first;
  if (place < 0 || place >= entries) return;
  int num_parts = 1;
  while (begin + num_parts * PART < tokens && ids[begin + num_parts * PART] == id) ++num_parts;
  const float* const head = parts + (i64)(blockIdx.x * 2 + !from_border) * width;
  const float* const rest = parts + (i64)blockIdx.x * 2 * width;
  for (int at = threadIdx.x; at < width; at += blockDim.x) {
    float sum = gradient[place * width + at] + head[at];
#pragma unroll 4
    for (int k = 1; k < num_parts; ++k) sum += rest[(i64)k * 2 * width + at];
    gradient[place * width + at] = sum;
  }
}
