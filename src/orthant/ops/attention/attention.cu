// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0: at most 128 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=1: at most 128 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=1: at most 255 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0 UNPADDED=1: at most 128 registers
// variant ELEMENT=0 SIZE=64 CAUSAL=0 MASKED=1 DROPS=1 WGMMA=1 UNPADDED=1: at most 128 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=0 UNPADDED=1: at most 255 registers
// variant ELEMENT=1 SIZE=128 CAUSAL=1 MASKED=1 DROPS=1 WGMMA=1 UNPADDED=1: at most 255 registers
// all ELEMENT=0,1 SIZE=32,64,128 CAUSAL=0,1 MASKED=0,1 DROPS=0,1 WGMMA=0,1 UNPADDED=0,1
//
// Attention over heads of SIZE channels without ever storing scores, softmax in float32. CAUSAL: a query sees no later
// key. MASKED: keys may be hidden. DROPS: probabilities are dropped; the bits of what stays are left for backward.
// WGMMA: four warps multiply together, on sm_90a; elsewhere it is as if it were 0. UNPADDED: see attention_tiles.inc.
//
// Order of keys in a tile: a lane of a warp holds columns 2c and 2c + 1 of every 8 in a product's result. Of 32 keys,
// key 8c + 2n + h is put into column 2c + h of result n, so that a lane has eight neighbours: one block of the random
// stream.
#include "attention_tiles.inc"

#define STAGES 3  // of tiles: one is read by the products of the tile before

#if DROPS
// What of two rounded probabilities stays, as a mask of their 32 bits, from the word of the random stream that both
// share: halves of at least the threshold. Compares both at once: bit 15 of a half says whether it is.
struct Comparison {
  u32 low, either;
};
DEVICE Comparison comparison(u32 threshold) {
  u32 either = threshold < 0x8000u ? ~0u : 0;
  asm volatile("" : "+r"(either));  // a number, not a branch
  return {(threshold & 0x7fffu) * 0x10001u, either};
}
DEVICE u32 staying(u32 word, const Comparison& with) {
  const u32 reached = (word | 0x80008000u) - with.low;  // by the lower 15 bits
  return permute_bytes((word & reached) | (with.either & (word | reached)), 0, 0xbb99);
}
#endif

// out [rows, sequence, heads * SIZE]; lse [rows, heads, sequence]: log of the sum of exp(scores), 0 for a query that
// sees nothing; bits [rows, heads, sequence, words] of what stays, 32 keys to a word. UNPADDED: out [tokens, heads *
// SIZE], lse [heads, tokens], bits [heads, tokens, words].
extern "C" __global__ void __launch_bounds__(THREADS, SIZE == 128 ? 1 : 2)
    attention_forward(Element* out, float* lse, u8* bits, const Element* qkv, const u8* mask, Layout layout) {
  extern __shared__ __align__(1024) u8 shared[];
  const u32 q_block = shared_address(shared), tiles = q_block + BLOCK_BYTES;  // of keys, then values
  const int lane = threadIdx.x & 31, warp = uniform(threadIdx.x >> 5);
  const int head = blockIdx.y, row = blockIdx.z;
  const int first = (CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * BLOCK;  // the most work first
#if UNPADDED
  if (row == (int)gridDim.z - 1) {
    behind_rows(layout, blockIdx.x, [&](int token, int channel) {
      clear_vector(out + ((i64)token * layout.heads + head) * SIZE + channel);
      if (channel == 0) lse[(i64)head * layout.tokens + token] = 0;
    });
    return;
  }
#endif
  const RowTokens own = tokens_of(layout, row);
  const int sequence = own.count;
  if (UNPADDED && first >= sequence) return;
  const int kv_heads = layout.heads / layout.group;
  const Element* tokens = qkv + own.first * layout.stride;
  const Element* keys = tokens + (layout.heads + head / layout.group) * SIZE;
  const Element* values = keys + kv_heads * SIZE;
  if (MASKED) mask += own.first;
  const int last = CAUSAL ? min(sequence, first + BLOCK + (int)layout.first_query - (int)layout.first_key) : sequence;
  const int num_tiles = last <= 0 ? 0 : (last + TILE - 1) / TILE;
  copy_rows<BLOCK, false>(q_block, tokens + head * SIZE, layout.stride, first, sequence);
  const auto copy_tile = [&](int t, u32 to) {
    asm volatile("" : "+r"(t));  // addresses are computed anew each time: registers are scarce
    copy_rows<TILE, true>(to, keys, layout.stride, t * TILE, sequence);
    copy_rows<TILE, true>(to + TILE_BYTES, values, layout.stride, t * TILE, sequence);
  };
  if (num_tiles > 0) copy_tile(0, tiles);
  end_copies();
  const float scale = layout.scale * LOG2_E;
  const int query = first + warp * 16 + (lane >> 2);  // and 8 further on
#if DROPS
  u64 stream = stream_of(layout.grid);  // read once for all tiles
  stream = (u64)(u32)uniform((int)(stream >> 32)) << 32 | (u32)uniform((int)stream);
  const u64 place = (layout.grid.first_row + row) * 4096 + layout.first_head + head;
  const int words = (layout.sequence + 31) / 32;
  u8* const kept = bits + (queries_at(layout, own, row, head) + first) * words * 4;
  const auto draw = [&](u32(&stay)[TILE / 16][4], int t) {
    int at = warp * 16 + (lane >> 2);
    asm volatile("" : "+r"(at));                                // computed anew each time: registers are scarce
    const Comparison with = comparison(layout.grid.threshold);  // at 2^16 nothing counts: the factor is 0
    const u32 to = (u32)at * words * 4 + t * 8 + (lane & 3);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 stays = 0;  // bits of a lane's 8 keys: even ones of both rows, then odd ones
#pragma unroll
      for (int side = 0; side < 2; ++side) {
        u32 drawn[4];
        const u64 block = (place << 40 >> 3) + ((u64)(layout.first_query + first + at + side * 8) << 17);
        const u32 key_block = (layout.first_key >> 3) + t * (TILE / 8) + half * 4 + (lane & 3);
        draw_block(layout.grid, stream, (u32)block + key_block, (u32)(block >> 32), drawn);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const u32 both = staying(drawn[i], with);
          stay[half * 2 + i / 2][i % 2 * 2 + side] = both;
          stays |= both & (0x20001u << (2 * i + 8 * side));
        }
      }
      stays |= stays >> 16;
      if (t * 2 + half < words) {
        if (first + at < sequence) kept[to + half * 4] = (u8)stays;
        if (first + at + 8 < sequence) kept[to + half * 4 + 32 * words] = (u8)(stays >> 8);
      }
    }
  };
#endif
  float acc[CHUNKS][4];
  clear(acc);
  float m0 = -INFINITY, m1 = -INFINITY, l0 = 0, l1 = 0;
  u32 tile = tiles;
#pragma unroll 1
  for (int t = 0; t < num_tiles; ++t) {
    await_copies<0>();
    show_products();
    __syncthreads();
    const u32 next = tile == tiles + (STAGES - 1) * 2 * TILE_BYTES ? tiles : tile + 2 * TILE_BYTES;
    if (t + 1 < num_tiles) copy_tile(t + 1, next);
    end_copies();
    float s[TILE / 8][4];
    begin_products();
    over_channels<2>(s, q_block, tile, 0, lane);
    end_products();
#if DROPS
    u32 stay[TILE / 16][4];    // in the order of a left factor
    if (WGMMA) draw(stay, t);  // beside the products
#endif
    const int key = t * TILE + 8 * (lane & 3);  // of a lane's first column; 32 more in the second half
    const u32 seen[2] = {visible(mask, t * TILE, sequence), visible(mask, t * TILE + 32, sequence)};
    const bool partly = (seen[0] & seen[1]) != ~0u ||
                        (CAUSAL && t * TILE + TILE + (int)layout.first_key > first + (int)layout.first_query);
    await_products<0>();
    settle(s);
    settle(acc);
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
    float n0 = -INFINITY, n1 = -INFINITY;
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n) {
      n0 = fmaxf(n0, fmaxf(s[n][0], s[n][1]));
      n1 = fmaxf(n1, fmaxf(s[n][2], s[n][3]));
    }
    // Probabilities are counted from a score m that need not be the largest: it follows when that is 2^8 larger.
    if (__ballot_sync(~0u, (n0 - m0) * scale > 8 || (n1 - m1) * scale > 8) != 0) {
#pragma unroll
      for (int offset = 1; offset < 4; offset <<= 1) {
        n0 = fmaxf(n0, __shfl_xor_sync(~0u, n0, offset));
        n1 = fmaxf(n1, __shfl_xor_sync(~0u, n1, offset));
      }
      n0 = fmaxf(n0, m0);
      n1 = fmaxf(n1, m1);
      const float shrink0 = n0 == -INFINITY ? 0 : fast_exp2((m0 - n0) * scale);
      const float shrink1 = n1 == -INFINITY ? 0 : fast_exp2((m1 - n1) * scale);
      m0 = n0;
      m1 = n1;
      l0 *= shrink0;
      l1 *= shrink1;
#pragma unroll
      for (int n = 0; n < CHUNKS; ++n) {
        acc[n][0] *= shrink0;
        acc[n][1] *= shrink0;
        acc[n][2] *= shrink1;
        acc[n][3] *= shrink1;
      }
    }
    const float base0 = m0 == -INFINITY ? 0 : m0 * scale, base1 = m1 == -INFINITY ? 0 : m1 * scale;
    u32 p[TILE / 16][4];
#pragma unroll
    for (int n = 0; n < TILE / 8; ++n) {
      const float a = fast_exp2(s[n][0] * scale - base0), b = fast_exp2(s[n][1] * scale - base0);
      const float c = fast_exp2(s[n][2] * scale - base1), d = fast_exp2(s[n][3] * scale - base1);
      l0 += a + b;
      l1 += c + d;
      p[n / 2][n % 2 * 2] = PACK(a, b);
      p[n / 2][n % 2 * 2 + 1] = PACK(c, d);
    }
#if DROPS
    if (!WGMMA) draw(stay, t);
#pragma unroll
    for (int i = 0; i < TILE / 4; ++i) p[i / 4][i % 4] &= stay[i / 4][i % 4];
#endif
    begin_products();
    over_rows(acc, p, tile + TILE_BYTES, 0, lane);
    end_products();
    tile = next;
  }
  await_products<0>();
  settle(acc);
#pragma unroll
  for (int offset = 1; offset < 4; offset <<= 1) {
    l0 += __shfl_xor_sync(~0u, l0, offset);
    l1 += __shfl_xor_sync(~0u, l1, offset);
  }
  const float factor = DROPS ? layout.grid.factor : 1;
  store_rows(out + ((i64)own.first * layout.heads + head) * SIZE, (i64)layout.heads * SIZE, first + warp * 16, sequence,
             acc, l0 > 0 ? factor / l0 : 0, l1 > 0 ? factor / l1 : 0);
  if ((lane & 3) == 0) {
    float* to = lse + queries_at(layout, own, row, head);
    if (query < sequence) to[query] = l0 > 0 ? m0 * layout.scale + logf(l0) : 0;
    if (query + 8 < sequence) to[query + 8] = l1 > 0 ? m1 * layout.scale + logf(l1) : 0;
  }
}
