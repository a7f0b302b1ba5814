// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0: at most 255 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=1: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=1: at most 255 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0 UNPADDED=1: at most 255 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=0 MASKED=1 DROPS=1 WGMMA=1 UNPADDED=1: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0 UNPADDED=1: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=1 UNPADDED=1: at most 255 registers
// all ELEMENT=0,1 SIZE=32,64,128 CAUSAL=0,1 MASKED=0,1 DROPS=0,1 WGMMA=0,1 UNPADDED=0,1
//
// Backward of attention.cu, with its macros: probabilities are made again from scores and log sums, and what was
// dropped is read.
#include "attention_tiles.inc"

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

// What backward needs of a query: the log sum to base 2, and delta, the sum over a head's channels of d_out * out, by
// the factor of what stays, which multiplies the results at the end.
DEVICE float2 numbers_of(float lse, float delta, const Layout& layout) {
  const float factor = DROPS ? layout.grid.factor : 1;
  return make_float2(lse * LOG2_E, factor > 0 ? delta * fast_reciprocal(factor) : 0);
}

// numbers as lse lies, [rows, heads, sequence]; `turns` begin at 0.
extern "C" __global__ void __launch_bounds__(256)
    attention_delta(float2* numbers, u32* turns, const float* lse, const Element* out, const Element* d_out, i64 items,
                    int num_turns, Layout layout) {
  const i64 thread = (i64)blockIdx.x * 256 + threadIdx.x;
  const i64 item = thread / CHUNKS;  // token * heads + head
  const bool inside = item < items;
  const i64 at = (inside ? item : 0) * SIZE + threadIdx.x % CHUNKS * 8;
  const float sum = channel_sum(out + at, d_out + at);
  if (thread < num_turns) turns[thread] = 0;
  if (!inside || threadIdx.x % CHUNKS != 0) return;
  const i64 token = item / layout.heads, head = item % layout.heads;
#if UNPADDED
  const i64 to = head * layout.tokens + token;
#else
  const i64 to = (token / layout.sequence * layout.heads + head) * layout.sequence + token % layout.sequence;
#endif
  numbers[to] = numbers_of(lse[to], sum, layout);
}

DEVICE float2 load_pair(u32 from) {
  float2 pair;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "r"(from));
  return pair;
}
DEVICE float4 load_four(u32 from) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(from));
  return four;
}
DEVICE void store_word(u32 to, u32 word) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(word));
}

// Of a tile's queries in shared memory: numbers, and bits of 4 times 32 keys.
#define NUMBERS_BYTES (6 * TILE * 4)
DEVICE void copy_numbers(u32 tile, const float2* numbers, const u32* bits, i64 from, int first_query, int first,
                         int sequence, const Layout& layout) {
  const int thread = threadIdx.x;
  if (numbers != nullptr && thread < TILE) {
    copy_bytes<8>(tile + thread * 8, numbers + from + first_query + thread, first_query + thread < sequence);
  }
#if DROPS
  const int words = (layout.sequence + 31) / 32, query = first_query + thread / 4, word = first / 32 + thread % 4;
  copy_bytes<4>(tile + TILE * 8 + (thread % 4 * TILE + thread / 4) * 4, bits + (from + query) * words + word,
                query < sequence && word < words);
#endif
}

// The same numbers of a head's queries, of which there are at most 128: two tiles.
DEVICE void make_numbers(u32 of_tiles, const Element* out, const Element* d_out, const float* lse, i64 queries,
                         const RowTokens& own, int head, const Layout& layout) {
#pragma unroll
  for (int i = 0; i < BLOCK * CHUNKS / THREADS; ++i) {
    const int query = (int)threadIdx.x / CHUNKS + i * (THREADS / CHUNKS);
    const bool inside = query < own.count;
    const i64 token = own.first + (inside ? query : 0);
    const i64 at = (token * layout.heads + head) * SIZE + threadIdx.x % CHUNKS * 8;
    const float2 made = numbers_of(lse[queries + (inside ? query : 0)], channel_sum(out + at, d_out + at), layout);
    const u32 to = of_tiles + query / TILE * NUMBERS_BYTES + query % TILE * 8;
    if (threadIdx.x % CHUNKS < 2) {
      store_word(to + threadIdx.x % CHUNKS * 4,
                 inside ? __float_as_uint(threadIdx.x % CHUNKS == 0 ? made.x : made.y) : 0);
    }
  }
}

// What a warp of backward knows of its keys.
struct Keys {
  u32 block;  // in shared memory: 128 keys, then values
  int first;  // of the block
  u32 seen;   // bits of the warp's 16: whether they may be seen
};

// STEP queries of a tile from `first` on, against a warp's keys: adds to the gradients of keys and values, and leaves
// those of scores, keys by queries, in `d_scores`. `late`: some of the queries come before some of the keys. `query`:
// the first one's place in the sequence; `behind`: of keys against queries. `meanwhile()` runs beside products.
template <int STEP, class Meanwhile>
DEVICE void key_step(float (&d_k)[CHUNKS][4], float (&d_v)[CHUNKS][4], const Keys& keys, u32 q_tile, u32 g_tile,
                     u32 numbers, u32 d_scores, int first, bool late, int query, int behind, const Layout& layout,
                     const Meanwhile& meanwhile) {
  int lane = threadIdx.x & 31;
  asm volatile("" : "+r"(lane));  // addresses are computed anew each time: registers are scarce
  float p[STEP / 8][4], g[STEP / 8][4];
  begin_products();
  over_channels<SIZE == 128 ? 1 : STEPS>(p, keys.block, q_tile, first, lane);
  over_channels<SIZE == 128 ? 1 : STEPS>(g, keys.block + BLOCK_BYTES, g_tile, first, lane);
  end_products();
  meanwhile();
  await_products<0>();
  settle(p);
  settle(g);
  const int place = (int)(threadIdx.x >> 5) * 16 + (lane >> 2);  // of the lane's first key; the other is 8 further on
  if (late || keys.seen != 0xffff) {
    const u32 seen = keys.seen >> (lane >> 2);
    const int earliest = keys.first + place + behind - query;  // of queries that see the first key
#pragma unroll
    for (int n = 0; n < STEP / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int column = n * 8 + (lane & 3) * 2 + (j & 1), further = (j >> 1) * 8;
        if (!(seen >> further & 1) || (late && column < earliest + further)) p[n][j] = -INFINITY;
      }
    }
  }
  const float scale = layout.scale * LOG2_E;
#if DROPS
  const u32 stay = numbers + TILE * 8 + place / 32 * TILE * 4;
  const int up = 23 - place % 32;  // of a query's 32 bits, bits 23 and 31 then are the lane's keys'
#endif
  u32 left[STEP / 16][4];  // in the order of a left factor: probabilities that stay
#pragma unroll
  for (int n = 0; n < STEP / 8; ++n) {
    const int column = first + n * 8 + (lane & 3) * 2;
    const float4 of = load_four(numbers + column * 8);
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      float& even = p[n][2 * side];
      float& odd = p[n][2 * side + 1];
      even = fast_exp2(even * scale - of.x);
      odd = fast_exp2(odd * scale - of.z);
      left[n / 2][n % 2 * 2 + side] = PACK(even, odd);
    }
#if DROPS
    const float2 pair = load_pair(stay + column * 4);
    const u32 x = __float_as_uint(pair.x) << up, y = __float_as_uint(pair.y) << up;
    left[n / 2][n % 2 * 2] &= permute_bytes(x, y, 0xeeaa);
    left[n / 2][n % 2 * 2 + 1] &= permute_bytes(x, y, 0xffbb);
#endif
  }
  begin_products();
  over_rows(d_v, left, g_tile, first, lane);
  end_products();
  u32 d_s[STEP / 16][4];  // made beside that product
#pragma unroll
  for (int n = 0; n < STEP / 8; ++n) {
    const int column = first + n * 8 + (lane & 3) * 2;
    const float4 of = load_four(numbers + column * 8);
#if DROPS
    const float2 pair = load_pair(stay + column * 4);
    const u32 x = __float_as_uint(pair.x) << up, y = __float_as_uint(pair.y) << up;
    g[n][0] = x & 1u << 23 ? g[n][0] : 0;
    g[n][1] = y & 1u << 23 ? g[n][1] : 0;
    g[n][2] = x & 1u << 31 ? g[n][2] : 0;
    g[n][3] = y & 1u << 31 ? g[n][3] : 0;
#endif
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      d_s[n / 2][n % 2 * 2 + side] =
          PACK(p[n][2 * side] * (g[n][2 * side] - of.y), p[n][2 * side + 1] * (g[n][2 * side + 1] - of.w));
    }
  }
  const auto store_scores = [&] {
#pragma unroll
    for (int i = 0; i < STEP / 4; ++i) {
      const u32 chunk = first / 8 + i / 4 * 2 + i % 4 / 2;
      store_word(d_scores + (place + i % 2 * 8) * (TILE * 2) + ((chunk ^ (place & 7)) << 4) + (lane & 3) * 4,
                 d_s[i / 4][i % 4]);
    }
  };
  if (WGMMA) store_scores();  // nobody may read the factors of a product that is under way
  begin_products();
  over_rows(d_k, d_s, q_tile, first, lane);
  end_products();
  if (!WGMMA) store_scores();
  await_products<0>();
  settle(d_k);
  settle(d_v);
}

// Gradients of a tile's 64 queries from those of scores with 128 keys: of 8 warps four take 16 queries each, for half
// of the channels.
DEVICE void query_step(float (&d_q)[CHUNKS / 2][4], u32 d_scores, u32 k_block, int lane) {
  const int warp = uniform(threadIdx.x >> 5);
#if WGMMA
  const u64 a = matrix(d_scores, 8 * TILE * 2, 1);
  const u64 b = head_matrix(k_block + (warp >> 2) * (SIZE == 128 ? 1024 : SIZE));
  multiply<false, true, true>(d_q, a, b);
#pragma unroll
  for (int k = 1; k < BLOCK / 16; ++k) {
    multiply<true, true, true>(d_q, a + (k * 16 * TILE * 2 >> 4), b + (k * 16 * ROW_BYTES >> 4));
  }
#else
  const int rows = (warp & 3) * 16, chunk = (warp >> 2) * (CHUNKS / 2);
  clear(d_q);
#pragma unroll(SIZE == 128 ? 1 : BLOCK / 16)
  for (int k = 0; k < BLOCK / 16; ++k) {
    u32 a[4];
    const u32 at = k * 16 + (lane & 7) + ((lane >> 4) << 3);
    load_transposed(a, d_scores + ((at * 8 + ((rows / 8 + ((lane >> 3) & 1)) ^ (at & 7))) << 4));
#pragma unroll
    for (int n = 0; n < CHUNKS / 2; n += 2) {
      u32 b[4];
      right_channels(b, k_block, k * 16, chunk + n, lane);
      multiply_add(d_q[n], a, b[0], b[1]);
      multiply_add(d_q[n + 1], a, b[2], b[3]);
    }
  }
#endif
}

DEVICE u32 load_acquire(const u32* from) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// What is there by now; the load is under way until the value is used. What the value tells of is then read from the
// cache that all blocks share, behind a barrier.
DEVICE u32 load_early(const u32* from) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
DEVICE void store_release(u32* to, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// The place of a row's first tile of queries among those of all heads. UNPADDED: a head has [tokens / TILE + rows + 1],
// which is room for the last tile of each row that is cut short.
DEVICE i64 tiles_at(const Layout& layout, const RowTokens& own, int row, int head) {
#if UNPADDED
  return (i64)head * (layout.tokens / TILE + gridDim.z) + own.first / TILE + row;
#else
  return ((i64)row * layout.heads + head) * ((layout.sequence + TILE - 1) / TILE);
#endif
}

#if UNPADDED
DEVICE void clear_behind_rows(Element* d_qkv, int block, int kv_head, int group, const Layout& layout) {
  const int kv_heads = layout.heads / group;
  behind_rows(layout, block, [&](int token, int channel) {
    Element* const to = d_qkv + (i64)token * layout.stride + channel;
    for (int h = 0; h < group; ++h) clear_vector(to + (kv_head * group + h) * SIZE);
    clear_vector(to + (layout.heads + kv_head) * SIZE);
    clear_vector(to + (layout.heads + kv_heads + kv_head) * SIZE);
  });
}
#endif

// Arguments of both kernels, in their order.
#define PARAMETERS                                                                                \
  Element *d_qkv, const Element *qkv, const Element *out, const Element *d_out, const float *lse, \
      const float2 *numbers, const u32 *bits, const u8 *mask, float4 *sums, u32 *turns, int apart, Layout layout
#define ARGUMENTS d_qkv, qkv, out, d_out, lse, numbers, bits, mask, sums, turns, apart, layout

// All gradients. A block takes 128 keys of a key head and goes through the queries of its group's heads, STEP at a
// time. ALONE: it has all keys, and no other head's queries; it makes `numbers` itself.
//
// A tile's gradient of queries is summed over the blocks that see it in one order, whatever the card does when: until
// it is complete it is in `sums`, and `turns` [rows, heads, tiles] says how many blocks have added to it. Null where a
// block has all keys. UNPADDED: a row has as many blocks as its tokens need, whatever the grid has. Before the turns is
// a counter that numbers blocks in the order in which they begin, later keys of a head first.
//
// Under a causal mask a block begins at the first queries that see its keys. Else, with `apart`, block b begins at tile
// 2 b and goes round: those that keep pace then never wait. A block may wait for one that begins later: of the heads
// that have begun only the last one may lack blocks, so there must be room for more than the blocks of one head.
// Without `apart` all begin at the first tile, and a block waits only for those that began before it.
template <int STEP, bool ALONE>
DEVICE void backward(PARAMETERS) {
  extern __shared__ __align__(1024) u8 shared[];
  const u32 k_block = shared_address(shared), v_block = k_block + BLOCK_BYTES;
  const u32 tiles = v_block + BLOCK_BYTES;           // of queries, then gradients of outputs, twice
  const u32 d_scores = tiles + 4 * TILE_BYTES;       // [128 keys][64 queries]
  const u32 of_tiles = d_scores + BLOCK * TILE * 2;  // numbers and bits, twice
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x >> 5);
  const int group = ALONE ? 1 : layout.group, kv_heads = layout.heads / group, most_blocks = ALONE ? 1 : gridDim.x;
  int block = ALONE ? 0 : blockIdx.x, kv_head = blockIdx.y, row = blockIdx.z;
  if (!ALONE && turns != nullptr) {
    u32* const begun = reinterpret_cast<u32*>(shared);
    if (threadIdx.x == 0) *begun = atomicAdd(turns, 1u);
    __syncthreads();
    const u32 number = uniform(*begun);
    __syncthreads();
    block = most_blocks - 1 - number % most_blocks;
    kv_head = number / most_blocks % kv_heads;
    row = number / most_blocks / kv_heads;
    ++turns;
  }
#if UNPADDED
  if (row == (int)gridDim.z - 1) return clear_behind_rows(d_qkv, block, kv_head, group, layout);
#endif
  const RowTokens own = tokens_of(layout, row);
  const int sequence = own.count, first = block * BLOCK;
  if (UNPADDED && first >= sequence) return;
  const int num_blocks = UNPADDED && !ALONE ? (sequence + BLOCK - 1) / BLOCK : most_blocks;  // of this row
  const i64 token_row = own.first;
  const Element* tokens = qkv + token_row * layout.stride;
  Element* const d_tokens = d_qkv + token_row * layout.stride;
  const i64 keys_at = (layout.heads + kv_head) * SIZE, values_at = keys_at + kv_heads * SIZE;
  const i64 out_stride = (i64)layout.heads * SIZE;
  const int num_tiles = (sequence + TILE - 1) / TILE;
  const int behind = (int)layout.first_key - (int)layout.first_query;
  // The block's tiles: `num_steps` from `start` on, the first one behind the last one. Under a causal mask earlier
  // queries see none of the keys; the first block writes their gradients.
  const int start = CAUSAL  ? block > 0 ? min(max(first + behind, 0) / TILE, num_tiles) : 0
                    : apart ? max(2 * block - num_tiles % 2, 0)
                            : 0;
  const int num_steps = CAUSAL ? num_tiles - start : num_tiles;
  const auto tile_of = [&](int step) { return start + step < num_tiles ? start + step : start + step - num_tiles; };
  copy_rows<BLOCK, false>(k_block, tokens + keys_at, layout.stride, first, sequence);
  copy_rows<BLOCK, false>(v_block, tokens + values_at, layout.stride, first, sequence);
  const auto copy_tile = [&](int head, int step) {
    if (step >= num_steps) return end_copies();
    const int t = tile_of(step);
    asm volatile("" : "+r"(head));  // addresses are computed anew each time: registers are scarce
    const u32 stage = step & 1, to = tiles + stage * 2 * TILE_BYTES;
    copy_rows<TILE, false>(to, tokens + head * SIZE, layout.stride, t * TILE, sequence);
    copy_rows<TILE, false>(to + TILE_BYTES, d_out + token_row * out_stride + head * SIZE, out_stride, t * TILE,
                           sequence);
    copy_numbers(of_tiles + stage * NUMBERS_BYTES, ALONE ? nullptr : numbers, bits, queries_at(layout, own, row, head),
                 t * TILE, first, sequence, layout);
    end_copies();
  };
  float d_k[CHUNKS][4], d_v[CHUNKS][4];
  clear(d_k);
  clear(d_v);
  const u32 seen = visible(MASKED ? mask + token_row : mask, first + warp / 2 * 32, sequence);
  const Keys keys = {k_block, first, seen >> (warp % 2 * 16) & 0xffff};
  const float by_value = DROPS ? layout.grid.factor : 1, by_score = by_value * layout.scale;
  for (int h = 0; h < group; ++h) {
    const int head = kv_head * group + h;
    const i64 sums_at = tiles_at(layout, own, row, head);
    // Blocks whose keys a tile's queries see, all of them without a causal mask; and those that add to its sum before
    // this one: each adds after the later ones of those that begin at the tile or before it.
    const auto begun = [&](int t) {
      return CAUSAL  ? min(max((t * TILE + TILE - behind + BLOCK - 1) / BLOCK, 1), num_blocks)
             : apart ? min((t + num_tiles % 2) / 2 + 1, num_blocks)
                     : 0;
    };
    const auto before = [&](int t) {
      if (ALONE) return 0;
      return begun(t) - 1 - block + (block < begun(t) ? 0 : num_blocks);
    };
    const auto continues = [&](int t) { return !ALONE && before(t) + 1 < (CAUSAL ? begun(t) : num_blocks); };
    const auto sum_of = [&](int t) { return sums + (sums_at + t) * (TILE * SIZE / 4) + threadIdx.x; };
    // Adds what blocks before this one have added; what is complete is stored as the gradient.
    const auto finish = [&](int t, float(&sum)[CHUNKS / 2][4]) {
      if (before(t) > 0) {
#pragma unroll
        for (int n = 0; n < CHUNKS / 2; ++n) {
          const float4 of = __ldcg(sum_of(t) + n * THREADS);
          sum[n][0] += of.x, sum[n][1] += of.y, sum[n][2] += of.z, sum[n][3] += of.w;
        }
      }
      if (continues(t)) {
#pragma unroll
        for (int n = 0; n < CHUNKS / 2; ++n) {
          __stcg(sum_of(t) + n * THREADS, make_float4(sum[n][0], sum[n][1], sum[n][2], sum[n][3]));
        }
        return;
      }
      asm volatile("" : "+r"(t));  // addresses are computed anew, too
      store_rows(d_tokens + head * SIZE + (warp >> 2) * (SIZE / 2), layout.stride, t * TILE + (warp & 3) * 16, sequence,
                 sum, 1, 1);
    };
    // Behind a barrier after finish(): this block has added to the tile.
    const auto tell = [&](int t) {
      if (continues(t) && threadIdx.x == 0) store_release(turns + sums_at + t, before(t) + 1);
    };
    copy_tile(head, 0);
    if (ALONE) make_numbers(of_tiles, out, d_out, lse, queries_at(layout, own, row, head), own, head, layout);
#pragma unroll 1
    for (int step = 0; step < num_steps; ++step) {
      const int t = tile_of(step);
      await_copies<0>();
      show_products();
      __syncthreads();  // the tile is there, and the one before is done with
      copy_tile(head, step + 1);
      u32 turn = 0;
      const u32 stage = step & 1, q_tile = tiles + stage * 2 * TILE_BYTES;
      const bool late = CAUSAL && first + BLOCK + behind > t * TILE;
#pragma unroll 1
      for (int part = 0; part < TILE / STEP; ++part) {
        key_step<STEP>(d_k, d_v, keys, q_tile, q_tile + TILE_BYTES, of_tiles + stage * NUMBERS_BYTES, d_scores,
                       part * STEP, late, t * TILE + part * STEP, behind, layout, [&] {
                         if (ALONE || part > 0) return;
                         if (before(t) > 0 && threadIdx.x == 0) turn = load_early(turns + sums_at + t);
                         if (step > 0) tell(tile_of(step - 1));
                       });
      }
      if (!ALONE && threadIdx.x == 0) {
        while ((int)turn < before(t)) turn = load_acquire(turns + sums_at + t);
      }
      show_products();
      __syncthreads();  // gradients of scores are there, and it is this block's turn
      float d_q[CHUNKS / 2][4];
      begin_products();
      query_step(d_q, d_scores, k_block, lane);
      end_products();
      await_products<0>();
      settle(d_q);
#pragma unroll
      for (int n = 0; n < CHUNKS / 2; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) d_q[n][j] *= by_score;
      }
      finish(t, d_q);
    }
    if (!ALONE && num_steps > 0) {
      __syncthreads();
      tell(tile_of(num_steps - 1));
    }
  }
  store_rows(d_tokens + keys_at, layout.stride, first + warp * 16, sequence, d_k, by_score, by_score);
  store_rows(d_tokens + values_at, layout.stride, first + warp * 16, sequence, d_v, by_value, by_value);
}

#define BLOCKS_AT_ONCE (WGMMA && SIZE <= 64 ? 2 : 1)  // on a multiprocessor

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE) attention_backward(PARAMETERS) {
  backward<SIZE == 128 && !WGMMA ? 16 : 32, false>(ARGUMENTS);
}

#if SIZE <= 64
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE) attention_backward_short(PARAMETERS) {
  backward<32, true>(ARGUMENTS);
}
#endif
