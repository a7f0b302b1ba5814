// variant ELEMENT=0 HEAD=64 SHARED=0: at most 128 registers
// variant ELEMENT=1 HEAD=128 SHARED=0: at most 255 registers
// variant ELEMENT=0 HEAD=128 SHARED=1: at most 255 registers
// all ELEMENT=0,1 HEAD=32,64,96,128 SHARED=0,1
//
// Attention of a generation's new tokens over keys and values that lie in blocks of 16 tokens, of heads of up to HEAD
// channels (`size` of them, a multiple of 16). A block of keys is [16, size], one of values [size, 16].
//
// Note [Tiles of a cache]: over one key/value head, rows are pairs of a new token and a query head, token after token;
// a warp multiplies 16 of them, a tile, with 32 keys at a time. Fragments come straight from memory: which channels and
// which keys a lane takes does not matter while both factors agree, so a lane reads eight neighbouring channels of a
// key, and four neighbouring keys of a channel. SHARED: the warps of a block share a tile and one CHUNK of its keys, so
// that a few tokens with long pasts fill the card; chunks are joined in order, so that their number changes no bits.
// Else each warp has a tile and all of its keys.
#define WARPS 8
#define KEYS 16    // of a block
#define CHUNK 256  // WARPS times 32
#define TILE 16
#define INFINITY __int_as_float(0x7f800000)

struct Cached {
  Element* out;            // [tokens, heads * size]
  const Element* qkv;      // [tokens, (heads + 2 kv_heads) * size]
  Element* keys;           // [blocks, kv_heads, KEYS, size]
  Element* values;         // [blocks, kv_heads, size, KEYS]
  const Element* cosines;  // [positions, size / 2] of all positions; null: nothing is turned
  const Element* sines;
  const i64* sequences;  // [sequences, 3]: first new token, how many, tokens before them; -1: of nobody
  const i64* tables;     // [sequences, table_width]: numbers of blocks
  const i64* tiles;      // [tiles, 2]: sequence, first row
  float* parts;          // SHARED: [tiles, kv_heads, chunks, TILE, size + 2]: sums, highest score, sum of powers
  int num_tiles, heads, kv_heads, size, table_width, window, chunks;
  int files;  // SHARED: whether new keys and values are filed here; each sequence has one tile then
  float scale;
};

// Channels [at, at + LANE) of a head of a token at that position, as they are turned.
DEVICE uint4 turned_vector(const Cached& c, const Element* head, int at, i64 position) {
  if (at >= c.size) return make_uint4(0, 0, 0, 0);
  const uint4 own = *reinterpret_cast<const uint4*>(head + at);
  if (c.cosines == nullptr) return own;
  const int half = c.size / 2;
  const bool low = at < half;
  const int angle = low ? at : at - half;
  float a[LANE], b[LANE], cosine[LANE], sine[LANE];
  widen(own, a);
  widen(*reinterpret_cast<const uint4*>(head + (low ? at + half : at - half)), b);
  widen(*reinterpret_cast<const uint4*>(c.cosines + position * half + angle), cosine);
  widen(*reinterpret_cast<const uint4*>(c.sines + position * half + angle), sine);
#pragma unroll
  for (int j = 0; j < LANE; ++j) a[j] = low ? a[j] * cosine[j] - b[j] * sine[j] : a[j] * cosine[j] + b[j] * sine[j];
  return narrow(a);
}

// The token's key and value of one head, by neighbouring threads of which this one is `thread`.
template <int COUNT>
DEVICE void file_token(const Cached& c, i64 token, int position, i64 block, int kv, int thread) {
  const int place = position % KEYS;
  const i64 head = (block * c.kv_heads + kv) * KEYS * c.size;
  const Element* key = c.qkv + (token * (c.heads + 2 * c.kv_heads) + c.heads + kv) * c.size;
  const Element* value = key + (i64)c.kv_heads * c.size;
  for (int i = thread; i < c.size / LANE; i += COUNT) {
    *reinterpret_cast<uint4*>(c.keys + head + place * c.size + i * LANE) = turned_vector(c, key, i * LANE, position);
  }
  for (int i = thread; i < c.size; i += COUNT) c.values[head + i * KEYS + place] = value[i];
}

// Of every new token: one to a block.
extern "C" __global__ void __launch_bounds__(128, 8) file_keys(Cached c, const i64* sequence_of, const i64* positions) {
  await_previous();
  let_next_begin();
  const i64 token = blockIdx.x, sequence = sequence_of[token];
  const int position = (int)positions[token];
  if (c.sequences[3 * sequence + 2] < 0) return;
  const i64 block = c.tables[sequence * c.table_width + position / KEYS];
  const int lane = threadIdx.x & 31;
  for (int kv = threadIdx.x >> 5; kv < c.kv_heads; kv += 4) file_token<32>(c, token, position, block, kv, lane);
}

DEVICE u32 word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
// Two values of which those at or beyond `end` were never written.
DEVICE u32 written(u32 both, int first, int end) {
  return first + 1 < end ? both : first < end ? both & 0xffffu : 0u;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, HEAD > 64 || SHARED ? 1 : 2) attend(Cached c) {
#if !SHARED
  await_previous();
  let_next_begin();
#endif
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = lane >> 2, quarter = lane & 3;
  const int tile = SHARED ? blockIdx.x : blockIdx.x * WARPS + warp;
  if (tile >= c.num_tiles) return;
  const int kv = blockIdx.y, group = c.heads / c.kv_heads;
  const i64 sequence = c.tiles[2 * tile];
  const int first_row = (int)c.tiles[2 * tile + 1];
  const i64 first_token = c.sequences[3 * sequence];
  const int rows = (int)c.sequences[3 * sequence + 1] * group, past = (int)c.sequences[3 * sequence + 2];
  const i64* const table = c.tables + sequence * c.table_width;
  const int lowest = past + first_row / group;
  const int end = past < 0 ? 0 : past + min(first_row + TILE - 1, rows - 1) / group + 1;  // of what any row sees
  int from = c.window > 0 ? max(lowest - c.window + 1, 0) : 0, to = end;
#if SHARED
  await_previous();  // no kernel of a step writes its lists
  let_next_begin();
#endif
  if (SHARED) {
    const int chunk = blockIdx.z * CHUNK;
    from = max(from, chunk);
    to = min(to, chunk + CHUNK);
    if (from >= to && blockIdx.z > 0) return;  // nothing to join
    if (c.files && past >= chunk && past < chunk + CHUNK) {
      file_token<32 * WARPS>(c, first_token, past, table[past / KEYS], kv, threadIdx.x);
      __syncthreads();
    }
  }
  const i64 width = (i64)(c.heads + 2 * c.kv_heads) * c.size;
  int position[2];
  uint4 q[2][HEAD / 32];
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int r = min(first_row + row + side * 8, rows - 1);  // those beyond the last are computed and not written
    position[side] = past + r / group;
    const Element* head = c.qkv + (first_token + r / group) * width + (kv * group + r % group) * c.size;
#pragma unroll
    for (int j = 0; j < HEAD / 32; ++j) {
      q[side][j] = turned_vector(c, head, 32 * j + 8 * quarter, max(position[side], 0));
    }
  }
  float sums[HEAD / 8][4];
#pragma unroll
  for (int n = 0; n < HEAD / 8; ++n) sums[n][0] = sums[n][1] = sums[n][2] = sums[n][3] = 0;
  float highest[2] = {-INFINITY, -INFINITY}, powers[2] = {0, 0};
  const float scale = c.scale * LOG2_E;
  const int begin = SHARED ? (int)blockIdx.z * CHUNK + warp * 2 * KEYS : from / KEYS * KEYS;
#pragma unroll 1
  for (int key = begin; key < to; key += SHARED ? CHUNK : 2 * KEYS) {
    const Element* blocks[2];  // of keys; null: no row sees one of its keys
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      const int at = key + b * KEYS;
      const bool seen = at < to && at + KEYS > from;
      blocks[b] = seen ? c.keys + (table[at / KEYS] * c.kv_heads + kv) * KEYS * c.size : nullptr;
    }
    float scores[2][2][4];
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float(&s)[4] = scores[b][half];
        s[0] = s[1] = s[2] = s[3] = 0;
        const int place = (row >> 1) * 4 + (row & 1) + 2 * half;
#pragma unroll
        for (int j = 0; j < HEAD / 32; ++j) {
          const int at = 32 * j + 8 * quarter;
          const uint4 k = blocks[b] != nullptr && at < c.size
                              ? *reinterpret_cast<const uint4*>(blocks[b] + place * c.size + at)
                              : make_uint4(0, 0, 0, 0);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const u32 a[4] = {word_of(q[0][j], 2 * i), word_of(q[1][j], 2 * i), word_of(q[0][j], 2 * i + 1),
                              word_of(q[1][j], 2 * i + 1)};
            multiply_add(s, a, word_of(k, 2 * i), word_of(k, 2 * i + 1));
          }
        }
      }
    }
    float most[2] = {highest[0], highest[1]};
#pragma unroll
    for (int b = 0; b < 2; ++b) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int at = key + b * KEYS + 4 * quarter + 2 * half + (j & 1), own = position[j >> 1];
          const bool seen = blocks[b] != nullptr && at <= own && (c.window == 0 || at > own - c.window);
          scores[b][half][j] = seen ? scores[b][half][j] * scale : -INFINITY;
          most[j >> 1] = fmaxf(most[j >> 1], scores[b][half][j]);
        }
      }
    }
    float shrink[2];
#pragma unroll
    for (int side = 0; side < 2; ++side) {
      most[side] = fmaxf(most[side], __shfl_xor_sync(~0u, most[side], 1));
      most[side] = fmaxf(most[side], __shfl_xor_sync(~0u, most[side], 2));
      const float base = most[side] == -INFINITY ? 0.0f : most[side];
      shrink[side] = fast_exp2(highest[side] - base);
      highest[side] = most[side];
      most[side] = base;
      powers[side] *= shrink[side];
    }
#pragma unroll
    for (int n = 0; n < HEAD / 8; ++n) {
#pragma unroll
      for (int j = 0; j < 4; ++j) sums[n][j] *= shrink[j >> 1];
    }
#pragma unroll
    for (int b = 0; b < 2; ++b) {
      if (blocks[b] == nullptr) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          scores[b][half][j] = fast_exp2(scores[b][half][j] - most[j >> 1]);
          powers[j >> 1] += scores[b][half][j];
        }
      }
      const u32 p[4] = {PACK(scores[b][0][0], scores[b][0][1]), PACK(scores[b][0][2], scores[b][0][3]),
                        PACK(scores[b][1][0], scores[b][1][1]), PACK(scores[b][1][2], scores[b][1][3])};
      const Element* values = c.values + (blocks[b] - c.keys);
      const int at = key + b * KEYS + 4 * quarter;
      const bool whole = key + (b + 1) * KEYS <= end;
#pragma unroll
      for (int n = 0; n < HEAD / 8; ++n) {
        if (n * 8 >= c.size) break;
        uint2 v = *reinterpret_cast<const uint2*>(values + (n * 8 + row) * KEYS + 4 * quarter);
        if (!whole) v = make_uint2(written(v.x, at, end), written(v.y, at + 2, end));
        multiply_add(sums[n], p, v.x, v.y);
      }
    }
  }
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    powers[side] += __shfl_xor_sync(~0u, powers[side], 1);
    powers[side] += __shfl_xor_sync(~0u, powers[side], 2);
  }
#if !SHARED
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int r = first_row + row + side * 8;
    if (r >= rows) continue;
    Element* head = c.out + ((first_token + r / group) * c.heads + kv * group + r % group) * c.size;
    const float factor = powers[side] > 0 ? 1.0f / powers[side] : 0.0f;
#pragma unroll
    for (int n = 0; n < HEAD / 8; ++n) {
      if (n * 8 >= c.size) break;
      *reinterpret_cast<u32*>(head + n * 8 + 2 * quarter) =
          PACK(sums[n][2 * side] * factor, sums[n][2 * side + 1] * factor);
    }
  }
#else
  extern __shared__ __align__(16) float shared[];  // [WARPS, TILE, HEAD + 2]
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    float* own = shared + (warp * TILE + row + side * 8) * (HEAD + 2);
#pragma unroll
    for (int n = 0; n < HEAD / 8; ++n) {
      own[n * 8 + 2 * quarter] = sums[n][2 * side];
      own[n * 8 + 2 * quarter + 1] = sums[n][2 * side + 1];
    }
    if (quarter == 0) {
      own[HEAD] = highest[side];
      own[HEAD + 1] = powers[side];
    }
  }
  __syncthreads();
  const int live = min(rows - first_row, TILE);
  for (int i = threadIdx.x; i < live * c.size; i += 32 * WARPS) {
    const int r = i / c.size, channel = i % c.size;
    float top = -INFINITY;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) top = fmaxf(top, shared[(w * TILE + r) * (HEAD + 2) + HEAD]);
    const float base = top == -INFINITY ? 0.0f : top;
    float sum = 0, power = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) {
      const float* part = shared + (w * TILE + r) * (HEAD + 2);
      const float factor = fast_exp2(part[HEAD] - base);
      sum += part[channel] * factor;
      power += part[HEAD + 1] * factor;
    }
    if (c.chunks == 1) {
      const int token = (first_row + r) / group, head = kv * group + (first_row + r) % group;
      c.out[((first_token + token) * c.heads + head) * c.size + channel] = narrowed(power > 0 ? sum / power : 0.0f);
    } else {
      float* part = c.parts + ((((i64)tile * c.kv_heads + kv) * c.chunks + blockIdx.z) * TILE + r) * (c.size + 2);
      part[channel] = sum;
      if (channel == 0) part[c.size] = top, part[c.size + 1] = power;
    }
  }
#endif
}

#if SHARED
// What the chunks of a tile left, one after the other.
extern "C" __global__ void __launch_bounds__(256) join_chunks(Cached c) {
  await_previous();
  let_next_begin();
  const int tile = blockIdx.x, kv = blockIdx.y, group = c.heads / c.kv_heads;
  const i64 sequence = c.tiles[2 * tile];
  const int first_row = (int)c.tiles[2 * tile + 1];
  const i64 first_token = c.sequences[3 * sequence];
  const int rows = (int)c.sequences[3 * sequence + 1] * group, past = (int)c.sequences[3 * sequence + 2];
  const int end = past < 0 ? 0 : past + min(first_row + TILE - 1, rows - 1) / group + 1;
  const int lowest = past + first_row / group;
  const int from = c.window > 0 ? max(lowest - c.window + 1, 0) : 0;
  const int live = min(rows - first_row, TILE);
  for (int i = threadIdx.x; i < live * c.size; i += blockDim.x) {
    const int r = i / c.size, channel = i % c.size;
    float top = -INFINITY, sum = 0, power = 0;
    for (int chunk = from / CHUNK; chunk * CHUNK < end; ++chunk) {
      const float* part = c.parts + ((((i64)tile * c.kv_heads + kv) * c.chunks + chunk) * TILE + r) * (c.size + 2);
      const float next = fmaxf(top, part[c.size]), base = next == -INFINITY ? 0.0f : next;
      const float shrink = fast_exp2(top - base), factor = fast_exp2(part[c.size] - base);
      sum = sum * shrink + part[channel] * factor;
      power = power * shrink + part[c.size + 1] * factor;
      top = next;
    }
    const int token = (first_row + r) / group, head = kv * group + (first_row + r) % group;
    c.out[((first_token + token) * c.heads + head) * c.size + channel] = narrowed(power > 0 ? sum / power : 0.0f);
  }
}
#endif
