// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WARP_ROWS=16: at most 128 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WARP_ROWS=32: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WARP_ROWS=16: at most 255 registers
// all ELEMENT=0,1 SIZE=32,64,128 CAUSAL=0,1 MASKED=0,1 DROPS=0,1 WARP_ROWS=16
// all ELEMENT=0,1 SIZE=32,64 CAUSAL=0,1 MASKED=0,1 DROPS=0,1 WARP_ROWS=32
//
// Backward of attention.cu, with its macros: probabilities are made again from scores and log sums, and what was
// dropped is read. With 32 WARP_ROWS a warp reads shared memory half as often for a product, and needs twice the
// registers.
#include "attention_tiles.inc"

#define STEP 16      // queries that a warp takes at a time
#define KEY_STEPS 1  // unrolled there: registers are scarce
#define QUERY_STEPS (WARP_ROWS == 16 ? STEPS : 1)

// The sum of x * y over a head's channels, of which CHUNKS neighbouring lanes have 8 each; all of them get it.
DEVICE float channel_sum(const Element* x, const Element* y) {
  float a[LANE], b[LANE], sum = 0;
  widen(*reinterpret_cast<const uint4*>(x), a);
  widen(*reinterpret_cast<const uint4*>(y), b);
#pragma unroll
  for (int j = 0; j < LANE; ++j) sum += a[j] * b[j];
#pragma unroll
  for (int offset = 1; offset < CHUNKS; offset <<= 1) sum += __shfl_xor_sync(~0u, sum, offset);
  return sum;
}

// delta [rows, heads, sequence]: sums over a head's channels of d_out * out.
extern "C" __global__ void __launch_bounds__(256)
    attention_delta(float* delta, const Element* out, const Element* d_out, i64 items, int sequence, int heads) {
  const i64 item = ((i64)blockIdx.x * 256 + threadIdx.x) / CHUNKS;  // token * heads + head
  const bool inside = item < items;
  const i64 at = (inside ? item : 0) * SIZE + threadIdx.x % CHUNKS * 8;
  const float sum = channel_sum(out + at, d_out + at);
  if (!inside || threadIdx.x % CHUNKS != 0) return;
  const i64 token = item / heads, head = item % heads;
  delta[(token / sequence * heads + head) * sequence + token % sequence] = sum;
}

// What a warp of backward knows of its WARP_ROWS keys: a lane's are 8 apart.
struct Keys {
  u32 blocks;  // keys in shared memory, then values
  int row;     // of the first key of the warp, there
  int first;   // the lane's first key
  u32 seen;    // bits 0, 8, ...: whether its keys may be seen
};
DEVICE Keys keys_of(u32 blocks, int warp, int first, const u8* mask, i64 token_row, int sequence) {
  Keys keys;
  keys.blocks = blocks;
  keys.row = warp * WARP_ROWS;
  keys.first = first + keys.row + (int)(threadIdx.x & 31) / 4;
  keys.seen = visible(MASKED ? mask + token_row : mask, first + keys.row / 32 * 32, sequence) >> (keys.first & 31);
  return keys;
}

DEVICE float2 load_pair(u32 from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
  return pair;
}

// Numbers of a tile's queries in shared memory: log sums, deltas, and bits of 4 times 32 keys.
#define NUMBERS (6 * TILE)

// STEP queries of a tile from `first` on, against a warp's keys: adds to the gradients of keys and values, and leaves
// those of scores, keys by queries. `late`: some of the queries come before some of the keys. `query`: the first one's
// place in the sequence; `behind`: of keys against queries.
DEVICE void key_step(float (&d_k)[MATRICES][CHUNKS][4], float (&d_v)[MATRICES][CHUNKS][4],
                     float (&g)[MATRICES][STEP / 8][4], const Keys& keys, u32 q_tile, u32 g_tile, int first,
                     u32 numbers, bool late, int query, int behind, const Layout& layout) {
  int lane = threadIdx.x & 31;
  asm volatile("" : "+r"(lane));  // addresses are computed anew each time: registers are scarce
  float p[MATRICES][STEP / 8][4];
  over_channels<KEY_STEPS>(p, keys.blocks, keys.row, q_tile, first, lane);
  over_channels<KEY_STEPS>(g, keys.blocks + BLOCK_BYTES, keys.row, g_tile, first, lane);
  const float scale = layout.scale * LOG2_E;
#pragma unroll
  for (int n = 0; n < STEP / 8; ++n) {
    const int column = n * 8 + (lane & 3) * 2;
    const u32 at = numbers + (first + column) * 4;
    const float2 log_sums = load_pair(at);
    const float2 deltas = load_pair(at + 4 * TILE);
#if DROPS
    const float2 pair = load_pair(at + (2 + keys.row / 32) * 4 * TILE);
    const uint2 stay = make_uint2(__float_as_uint(pair.x), __float_as_uint(pair.y));
#endif
#pragma unroll
    for (int i = 0; i < 4 * MATRICES; ++i) {
      const int m = i / 4, j = i % 4, further = m * 16 + (j >> 1) * 8;  // key of the lane
      const bool odd = j & 1;
      bool shown = keys.seen >> further & 1;
      if (late) shown = shown && query + column + (j & 1) >= keys.first + further + behind;
      const float probability = shown ? fast_exp2(p[m][n][j] * scale - (odd ? log_sums.y : log_sums.x) * LOG2_E) : 0;
      float d = g[m][n][j];
      p[m][n][j] = probability;
#if DROPS
      const bool stays = (odd ? stay.y : stay.x) >> ((keys.first & 31) + further) & 1;
      d = stays ? d * layout.grid.factor : 0;
      p[m][n][j] = stays ? probability : 0;
#endif
      g[m][n][j] = probability * layout.scale * (d - (odd ? deltas.y : deltas.x));
    }
  }
  over_rows(d_v, p, g_tile, first, lane);
  over_rows(d_k, g, q_tile, first, lane);
}

// `delta` may be null: then it is left as it is. `from`: of the first query's numbers in the tensors; `first`: the
// first of 128 keys.
DEVICE void copy_numbers(float* tile, const float* lse, const float* delta, const u32* bits, i64 from, int first_query,
                         int first, int sequence) {
  if (threadIdx.x < TILE) {
    const int query = first_query + threadIdx.x;
    tile[threadIdx.x] = query < sequence ? lse[from + query] : INFINITY;
    if (delta != nullptr) tile[TILE + threadIdx.x] = query < sequence ? delta[from + query] : 0;
  }
#if DROPS
  const int words = (sequence + 31) / 32;
  for (int i = threadIdx.x; i < TILE * 4; i += THREADS) {
    const int query = first_query + i / 4, word = first / 32 + i % 4;
    tile[(2 + i % 4) * TILE + i / 4] =
        __uint_as_float(query < sequence && word < words ? bits[(from + query) * words + word] : 0);
  }
#endif
}

// Of a warp's keys from `first` on.
DEVICE void store_keys(Element* keys, Element* values, int first, const float (&d_k)[MATRICES][CHUNKS][4],
                       const float (&d_v)[MATRICES][CHUNKS][4], const Layout& layout) {
  const float factor = DROPS ? layout.grid.factor : 1;
#pragma unroll
  for (int m = 0; m < MATRICES; ++m) {
    store_rows(keys, layout.stride, first + m * 16, layout.sequence, d_k[m], 1, 1);
    store_rows(values, layout.stride, first + m * 16, layout.sequence, d_v[m], factor, factor);
  }
}

// Gradients of keys and values. A block takes 128 keys of a key head and goes through the queries of its group's heads.
extern "C" __global__ void __launch_bounds__(THREADS, SIZE == 128 ? 1 : 2)
    attention_backward(Element* d_qkv, const Element* qkv, const Element* d_out, const float* lse, const float* delta,
                       const u32* bits, const u8* mask, Layout layout) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 k_block = shared_address(shared), v_block = k_block + BLOCK_BYTES;
  const u32 tiles = v_block + BLOCK_BYTES;  // of queries, then gradients of outputs, twice
  float* const numbers = reinterpret_cast<float*>(shared + 2 * BLOCK_BYTES + 4 * TILE_BYTES);  // of two tiles
  const int warp = threadIdx.x >> 5;
  const int kv_head = blockIdx.y, row = blockIdx.z, first = blockIdx.x * BLOCK, sequence = layout.sequence;
  const int kv_heads = layout.heads / layout.group;
  const i64 token_row = (i64)row * sequence;
  const Element* tokens = qkv + token_row * layout.stride;
  const i64 keys_at = (layout.heads + kv_head) * SIZE, values_at = keys_at + kv_heads * SIZE;
  const int num_tiles = (sequence + TILE - 1) / TILE;
  const int behind = (int)layout.first_key - (int)layout.first_query;
  const int first_tile = CAUSAL ? min(max(first + behind, 0) / TILE, num_tiles) : 0;  // earlier queries see none
  copy_rows<BLOCK, false>(k_block, tokens + keys_at, layout.stride, first, sequence);
  copy_rows<BLOCK, false>(v_block, tokens + values_at, layout.stride, first, sequence);
  const auto copy_tile = [&](int head, int t) {
    const int buffer = t & 1;
    const u32 to = tiles + buffer * 2 * TILE_BYTES;
    copy_rows<TILE, false>(to, tokens + head * SIZE, layout.stride, t * TILE, sequence);
    copy_rows<TILE, false>(to + TILE_BYTES, d_out + (token_row * layout.heads + head) * SIZE, (i64)layout.heads * SIZE,
                           t * TILE, sequence);
    copy_numbers(numbers + buffer * NUMBERS, lse, delta, bits, ((i64)row * layout.heads + head) * sequence, t * TILE,
                 first, sequence);
  };
  float d_k[MATRICES][CHUNKS][4], d_v[MATRICES][CHUNKS][4];
  clear_all(d_k);
  clear_all(d_v);
  const Keys keys = keys_of(k_block, warp, first, mask, token_row, sequence);
  for (int h = 0; h < layout.group; ++h) {
    const int head = kv_head * layout.group + h;
    if (first_tile < num_tiles) copy_tile(head, first_tile);
    end_copies();
    for (int t = first_tile; t < num_tiles; ++t) {
      if (t + 1 < num_tiles) copy_tile(head, t + 1);
      end_copies();
      await_copies<1>();
      __syncthreads();
      const int buffer = t & 1;
      const u32 q_tile = tiles + buffer * 2 * TILE_BYTES;
      const bool late = CAUSAL && first + BLOCK + behind > t * TILE;
#pragma unroll 1
      for (int part = 0; part < TILE / STEP; ++part) {
        float g[MATRICES][STEP / 8][4];
        key_step(d_k, d_v, g, keys, q_tile, q_tile + TILE_BYTES, part * STEP,
                 shared_address(numbers + buffer * NUMBERS), late, t * TILE + part * STEP, behind, layout);
      }
      __syncthreads();
    }
    await_copies<0>();
    __syncthreads();
  }
  Element* to = d_qkv + token_row * layout.stride;
  store_keys(to + keys_at, to + values_at, first + warp * WARP_ROWS, d_k, d_v, layout);
}

#if SIZE <= 64
// Gradients of a tile's 64 queries from those of scores with 128 keys: four times 16 queries, of 8 warps each half of
// the channels.
DEVICE void query_step(Element* head, i64 stride, u32 d_scores, u32 k_block, int t, int sequence) {
  constexpr int kChunks = CHUNKS * 4 / WARPS;  // of this warp
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int rows = (warp & 3) * 16, chunk = (warp >> 2) * kChunks;
  float d_q[kChunks][4];
  clear(d_q);
#pragma unroll
  for (int k = 0; k < BLOCK / 16; ++k) {
    u32 a[4];
    const int at = k * 16 + (lane & 7) + ((lane >> 4) << 3);
    load_transposed(a, d_scores + ((at * 8 + ((rows / 8 + ((lane >> 3) & 1)) ^ (at & 7))) << 4));
#pragma unroll
    for (int n = 0; n < kChunks; n += 2) {
      u32 b[4];
      right_channels(b, k_block, k * 16, chunk + n, lane);
      multiply_add(d_q[n], a, b[0], b[1]);
      multiply_add(d_q[n + 1], a, b[2], b[3]);
    }
  }
#pragma unroll
  for (int n = 0; n < kChunks; ++n) {
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      const int query = t * TILE + rows + (lane >> 2) + side * 8;
      if (query >= sequence) continue;
      *reinterpret_cast<u32*>(head + query * stride + (chunk + n) * 8 + (lane & 3) * 2) =
          PACK(d_q[n][2 * side], d_q[n][2 * side + 1]);
    }
  }
}

// All gradients of a head of at most 128 keys, where heads do not share keys and queries begin where keys do: a block
// makes the gradients of scores once.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention_backward_short(Element* d_qkv, const Element* qkv, const Element* out, const Element* d_out,
                             const float* lse, const u32* bits, const u8* mask, Layout layout) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 k_block = shared_address(shared), v_block = k_block + BLOCK_BYTES;
  const u32 tiles = v_block + BLOCK_BYTES;      // of queries, then gradients of outputs, twice
  const u32 d_scores = tiles + 4 * TILE_BYTES;  // [128 keys][64 queries]
  float* const numbers =
      reinterpret_cast<float*>(shared + 2 * BLOCK_BYTES + 4 * TILE_BYTES + BLOCK * TILE * 2);  // of two tiles
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int head = blockIdx.y, row = blockIdx.z, sequence = layout.sequence;
  const int num_tiles = (sequence + TILE - 1) / TILE;
  const i64 token_row = (i64)row * sequence;
  const Element* tokens = qkv + token_row * layout.stride;
  const i64 keys_at = (layout.heads + head) * SIZE, values_at = keys_at + layout.heads * SIZE;
  const i64 from = ((i64)row * layout.heads + head) * sequence;
  const i64 out_at = (token_row * layout.heads + head) * SIZE, out_stride = (i64)layout.heads * SIZE;
  const auto copy_tile = [&](int t) {
    const u32 to = tiles + (t & 1) * 2 * TILE_BYTES;
    copy_rows<TILE, false>(to, tokens + head * SIZE, layout.stride, t * TILE, sequence);
    copy_rows<TILE, false>(to + TILE_BYTES, d_out + out_at, out_stride, t * TILE, sequence);
    copy_numbers(numbers + t * NUMBERS, lse, nullptr, bits, from, t * TILE, 0, sequence);
  };
  copy_rows<BLOCK, false>(k_block, tokens + keys_at, layout.stride, 0, sequence);
  copy_rows<BLOCK, false>(v_block, tokens + values_at, layout.stride, 0, sequence);
  copy_tile(0);
  end_copies();
  for (int i = threadIdx.x; i < BLOCK * CHUNKS; i += THREADS) {
    const int query = i / CHUNKS;
    const bool inside = query < sequence;
    const i64 at = out_at + (inside ? query : 0) * out_stride + i % CHUNKS * 8;
    const float sum = channel_sum(out + at, d_out + at);
    if (i % CHUNKS == 0) numbers[query / TILE * NUMBERS + TILE + query % TILE] = inside ? sum : 0;
  }
  float d_k[MATRICES][CHUNKS][4], d_v[MATRICES][CHUNKS][4];
  clear_all(d_k);
  clear_all(d_v);
  const Keys keys = keys_of(k_block, warp, 0, mask, token_row, sequence);
  for (int t = 0; t < num_tiles; ++t) {
    if (t + 1 < num_tiles) copy_tile(t + 1);
    end_copies();
    await_copies<1>();
    __syncthreads();
    const u32 q_tile = tiles + (t & 1) * 2 * TILE_BYTES;
#pragma unroll 1
    for (int part = 0; part < TILE / STEP; ++part) {
      float g[MATRICES][STEP / 8][4];
      key_step(d_k, d_v, g, keys, q_tile, q_tile + TILE_BYTES, part * STEP, shared_address(numbers + t * NUMBERS),
               CAUSAL, t * TILE + part * STEP, 0, layout);
#pragma unroll
      for (int n = 0; n < STEP / 8; ++n) {
#pragma unroll
        for (int i = 0; i < 2 * MATRICES; ++i) {
          const int m = i / 2, side = i % 2, to = warp * WARP_ROWS + m * 16 + (lane >> 2) + side * 8;
          const u32 chunk = (u32)(to * 8 + ((part * (STEP / 8) + n) ^ (to & 7))) << 4;
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(d_scores + chunk + (lane & 3) * 4),
                       "r"(PACK(g[m][n][2 * side], g[m][n][2 * side + 1])));
        }
      }
    }
    __syncthreads();
    query_step(d_qkv + token_row * layout.stride + head * SIZE, layout.stride, d_scores, k_block, t, sequence);
  }
  Element* to = d_qkv + token_row * layout.stride;
  store_keys(to + keys_at, to + values_at, warp * WARP_ROWS, d_k, d_v, layout);
}
#endif

// Gradients of queries, where keys are too many for one block. A block takes 128 queries of a head.
extern "C" __global__ void __launch_bounds__(THREADS, SIZE == 128 ? 1 : 2)
    attention_backward_queries(Element* d_qkv, const Element* qkv, const Element* d_out, const float* lse,
                               const float* delta, const u32* bits, const u8* mask, Layout layout) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 q_block = shared_address(shared), g_block = q_block + BLOCK_BYTES;
  const u32 tiles = g_block + BLOCK_BYTES;  // of keys, then values, twice
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int head = blockIdx.y, row = blockIdx.z, first = blockIdx.x * BLOCK, sequence = layout.sequence;
  const int kv_heads = layout.heads / layout.group;
  const i64 token_row = (i64)row * sequence;
  const Element* tokens = qkv + token_row * layout.stride;
  const Element* keys = tokens + (layout.heads + head / layout.group) * SIZE;
  const Element* values = keys + kv_heads * SIZE;
  if (MASKED) mask += token_row;
  const int ahead = (int)layout.first_query - (int)layout.first_key;
  const int last = CAUSAL ? min(sequence, first + BLOCK + ahead) : sequence;
  const int num_tiles = last <= 0 ? 0 : (last + TILE - 1) / TILE;
  copy_rows<BLOCK, false>(q_block, tokens + head * SIZE, layout.stride, first, sequence);
  copy_rows<BLOCK, false>(g_block, d_out + (token_row * layout.heads + head) * SIZE, (i64)layout.heads * SIZE, first,
                          sequence);
  const auto copy_tile = [&](int t) {
    const u32 to = tiles + (t & 1) * 2 * TILE_BYTES;
    copy_rows<TILE, false>(to, keys, layout.stride, t * TILE, sequence);
    copy_rows<TILE, false>(to + TILE_BYTES, values, layout.stride, t * TILE, sequence);
  };
  if (num_tiles > 0) copy_tile(0);
  end_copies();
  const int query = first + warp * WARP_ROWS + (lane >> 2);  // a lane's first: the others follow 8 apart
  const i64 numbers = ((i64)row * layout.heads + head) * sequence + query;
  float log_sum[2 * MATRICES], deltas[2 * MATRICES];
#pragma unroll
  for (int i = 0; i < 2 * MATRICES; ++i) {
    const bool inside = query + 8 * i < sequence;
    log_sum[i] = inside ? lse[numbers + 8 * i] * LOG2_E : INFINITY;
    deltas[i] = inside ? delta[numbers + 8 * i] : 0;
  }
#if DROPS
  const int words = (sequence + 31) / 32;
  const u32* stay0 = bits + numbers * words;
#endif
  const float scale = layout.scale * LOG2_E;
  float d_q[MATRICES][CHUNKS][4];
  clear_all(d_q);
  for (int t = 0; t < num_tiles; ++t) {
    if (t + 1 < num_tiles) copy_tile(t + 1);
    end_copies();
    await_copies<1>();
    __syncthreads();
    const u32 k_tile = tiles + (t & 1) * 2 * TILE_BYTES, v_tile = k_tile + TILE_BYTES;
    const bool late = CAUSAL && t * TILE + TILE > first + ahead;
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
#if DROPS
      u32 stay[2 * MATRICES];
#pragma unroll
      for (int i = 0; i < 2 * MATRICES; ++i) {
        const bool there = t * 2 + half < words && query + 8 * i < sequence;
        stay[i] = there ? stay0[(i64)(8 * i) * words + t * 2 + half] : 0;
      }
#endif
      float p[MATRICES][4][4], g[MATRICES][4][4];
      over_channels<QUERY_STEPS>(p, q_block, warp * WARP_ROWS, k_tile, half * 32, lane);
      over_channels<QUERY_STEPS>(g, g_block, warp * WARP_ROWS, v_tile, half * 32, lane);
      const u32 seen = visible(mask, t * TILE + half * 32, sequence);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
#pragma unroll
        for (int i = 0; i < 4 * MATRICES; ++i) {
          const int m = i / 4, j = i % 4, of = i / 2;  // the lane's query
          const int column = n * 8 + (lane & 3) * 2 + (j & 1);
          bool shown = seen >> column & 1;
          if (late) shown = shown && query + of * 8 + ahead >= t * TILE + half * 32 + column;
          const float probability = shown ? fast_exp2(p[m][n][j] * scale - log_sum[of]) : 0;
          float d = g[m][n][j];
#if DROPS
          d = stay[of] >> column & 1 ? d * layout.grid.factor : 0;
#endif
          g[m][n][j] = probability * layout.scale * (d - deltas[of]);
        }
      }
      over_rows(d_q, g, k_tile, half * 32, lane);
    }
    __syncthreads();
  }
#pragma unroll
  for (int m = 0; m < MATRICES; ++m) {
    store_rows(d_qkv + token_row * layout.stride + head * SIZE, layout.stride, first + warp * WARP_ROWS + m * 16,
               sequence, d_q[m], 1, 1);
  }
}
