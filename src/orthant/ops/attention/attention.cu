// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WARP_ROWS=16: at most 128 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WARP_ROWS=16: at most 255 registers
// all ELEMENT=0,1 SIZE=32,64,128 CAUSAL=0,1 MASKED=0,1 DROPS=0,1 WARP_ROWS=16
//
// Attention over heads of SIZE channels without ever storing scores, softmax in float32. CAUSAL: a query sees no later
// key. MASKED: keys may be hidden. DROPS: probabilities are dropped; the bits of what stays are left for backward.
//
// Order of keys in a tile: a lane of a warp holds columns 2c and 2c + 1 of every 8 in a product's result. Of 32 keys,
// key 8c + 2n + h is put into column 2c + h of result n, so that a lane has eight neighbours: one block of the random
// stream.
#include "attention_tiles.inc"

// out [rows, sequence, heads * SIZE]; lse [rows, heads, sequence]: log of the sum of exp(scores), 0 for a query that
// sees nothing; bits [rows, heads, sequence, words] of what stays, 32 keys to a word.
extern "C" __global__ void __launch_bounds__(THREADS, SIZE == 128 ? 1 : 2)
    attention_forward(Element* out, float* lse, u8* bits, const Element* qkv, const u8* mask, Layout layout) {
  extern __shared__ __align__(128) u8 shared[];
  const u32 q_block = shared_address(shared), tiles = q_block + BLOCK_BYTES;  // of keys, then values, twice
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int head = blockIdx.y, row = blockIdx.z, first = blockIdx.x * BLOCK, sequence = layout.sequence;
  const int kv_heads = layout.heads / layout.group;
  const Element* tokens = qkv + (i64)row * sequence * layout.stride;
  const Element* keys = tokens + (layout.heads + head / layout.group) * SIZE;
  const Element* values = keys + kv_heads * SIZE;
  if (MASKED) mask += (i64)row * sequence;
  const int last = CAUSAL ? min(sequence, first + BLOCK + (int)layout.first_query - (int)layout.first_key) : sequence;
  const int num_tiles = last <= 0 ? 0 : (last + TILE - 1) / TILE;
  copy_rows<BLOCK, false>(q_block, tokens + head * SIZE, layout.stride, first, sequence);
  const auto copy_tile = [&](int t) {
    const u32 to = tiles + (t & 1) * 2 * TILE_BYTES;
    copy_rows<TILE, true>(to, keys, layout.stride, t * TILE, sequence);
    copy_rows<TILE, true>(to + TILE_BYTES, values, layout.stride, t * TILE, sequence);
  };
  if (num_tiles > 0) copy_tile(0);
  end_copies();
  const float scale = layout.scale * LOG2_E;
  const int query = first + warp * 16 + (lane >> 2);  // and 8 further on
#if DROPS
  const u64 place = (layout.grid.first_row + row) * 4096 + layout.first_head + head;
  u64 block = (place << 40 >> 3) + ((u64)(layout.first_query + query) << 17) + (layout.first_key >> 3) + (lane & 3);
  const int words = (sequence + 31) / 32;
  const u32 threshold = layout.grid.threshold << 16;  // at 2^16 nothing counts: the factor is 0
  u8* kept = bits + (((i64)row * layout.heads + head) * sequence + query) * words * 4 + (lane & 3);
#endif
  float result[1][CHUNKS][4];
  float(&acc)[CHUNKS][4] = result[0];
  clear(acc);
  float m0 = -INFINITY, m1 = -INFINITY, l0 = 0, l1 = 0;
  for (int t = 0; t < num_tiles; ++t) {
    if (t + 1 < num_tiles) copy_tile(t + 1);
    end_copies();
    await_copies<1>();
    __syncthreads();
    const u32 tile = tiles + (t & 1) * 2 * TILE_BYTES;
    float scores[1][TILE / 8][4];
    float(&s)[TILE / 8][4] = scores[0];
    over_channels<STEPS>(scores, q_block, warp * 16, tile, 0, lane);
    const int key = t * TILE + 8 * (lane & 3);  // of a lane's first column; 32 more in the second half
    const u32 seen[2] = {visible(mask, t * TILE, sequence), visible(mask, t * TILE + 32, sequence)};
    const bool partly = (seen[0] & seen[1]) != ~0u ||
                        (CAUSAL && t * TILE + TILE + (int)layout.first_key > first + (int)layout.first_query);
    if (partly) {
      const int behind = (int)layout.first_query + query - (int)layout.first_key - key;  // later keys are hidden
#pragma unroll
      for (int n = 0; n < TILE / 8; ++n) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int column = (n & 3) * 2 + (j & 1);
          const bool hidden = !(seen[n >> 2] >> (8 * (lane & 3) + column) & 1) ||
                              (CAUSAL && column + (n >> 2) * 32 > behind + (j >> 1) * 8);
          if (hidden) s[n][j] = -INFINITY;
        }
      }
    }
    float n0 = m0, n1 = m1;
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n) {
      n0 = fmaxf(n0, fmaxf(s[n][0], s[n][1]));
      n1 = fmaxf(n1, fmaxf(s[n][2], s[n][3]));
    }
#pragma unroll
    for (int offset = 1; offset < 4; offset <<= 1) {
      n0 = fmaxf(n0, __shfl_xor_sync(~0u, n0, offset));
      n1 = fmaxf(n1, __shfl_xor_sync(~0u, n1, offset));
    }
    const float base0 = n0 == -INFINITY ? 0 : n0 * scale, base1 = n1 == -INFINITY ? 0 : n1 * scale;
    const float shrink0 = fast_exp2(m0 * scale - base0), shrink1 = fast_exp2(m1 * scale - base1);
    m0 = n0;
    m1 = n1;
    float sum0 = 0, sum1 = 0;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#if DROPS
      u32 drawn[2][4], stays[2] = {0, 0};
      draw_block(layout.grid, block + t * (TILE / 8) + half * 4, drawn[0]);
      draw_block(layout.grid, block + (8ull << 17) + t * (TILE / 8) + half * 4, drawn[1]);
#endif
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int n = half * 4 + i;
        s[n][0] = fast_exp2(s[n][0] * scale - base0);
        s[n][1] = fast_exp2(s[n][1] * scale - base0);
        s[n][2] = fast_exp2(s[n][2] * scale - base1);
        s[n][3] = fast_exp2(s[n][3] * scale - base1);
        sum0 += s[n][0] + s[n][1];
        sum1 += s[n][2] + s[n][3];
#if DROPS
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const u32 word = drawn[j >> 1][i];
          const bool stay = (j & 1 ? word : word << 16) >= threshold;
          if (stay) stays[j >> 1] |= 1u << (2 * i + (j & 1));
          s[n][j] = stay ? s[n][j] : 0;
        }
#endif
      }
#if DROPS
      if (t * 2 + half < words) {
        if (query < sequence) kept[(t * 2 + half) * 4] = (u8)stays[0];
        if (query + 8 < sequence) kept[((i64)8 * words + t * 2 + half) * 4] = (u8)stays[1];
      }
#endif
    }
    l0 = l0 * shrink0 + sum0;
    l1 = l1 * shrink1 + sum1;
#pragma unroll
    for (int n = 0; n < CHUNKS; ++n) {
      acc[n][0] *= shrink0;
      acc[n][1] *= shrink0;
      acc[n][2] *= shrink1;
      acc[n][3] *= shrink1;
    }
    over_rows(result, scores, tile + TILE_BYTES, 0, lane);
    __syncthreads();
  }
#pragma unroll
  for (int offset = 1; offset < 4; offset <<= 1) {
    l0 += __shfl_xor_sync(~0u, l0, offset);
    l1 += __shfl_xor_sync(~0u, l1, offset);
  }
  const float factor = DROPS ? layout.grid.factor : 1;
  store_rows(out + ((i64)row * sequence * layout.heads + head) * SIZE, (i64)layout.heads * SIZE, first + warp * 16,
             sequence, acc, l0 > 0 ? factor / l0 : 0, l1 > 0 ? factor / l1 : 0);
  if ((lane & 3) == 0) {
    float* to = lse + ((i64)row * layout.heads + head) * sequence;
    if (query < sequence) to[query] = l0 > 0 ? m0 * layout.scale + logf(l0) : 0;
    if (query + 8 < sequence) to[query + 8] = l1 > 0 ? m1 * layout.scale + logf(l1) : 0;
  }
}
