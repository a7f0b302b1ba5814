// variant ELEMENT=0 FORM=0 WGMMA=0: at most 192 registers
// variant ELEMENT=0 FORM=1 WGMMA=1: at most 232 registers
// variant ELEMENT=0 FORM=2 WGMMA=0: at most 192 registers
// variant ELEMENT=0 FORM=2 WGMMA=1: at most 232 registers
// all ELEMENT=0,1 FORM=0,1,2 WGMMA=0,1
//
// Products of every expert's rows with that expert's weight, and gradients of weights, in one start each: rows are
// sorted by expert, and where those of each end is on the device (expert_borders). FORM:
//   0: out [rows, columns] = left [rows, depth] weight^T, weight [experts, columns, depth]
//   1: out [rows, columns] = left [rows, depth] weight, weight [experts, depth, columns]
//   2: gradient [experts, lines, columns] (+)= left^T right over the expert's rows, in float32; left [rows, lines],
//      right [rows, columns]
// A block of 8 warps makes TALL lines and WIDE columns of one expert in registers. Tiles of both factors pass through
// shared memory, DEPTH of what is summed over at a time, two of them under way while one is multiplied. Sums have one
// order. Lines and columns are multiples of 8 and begin at multiples of 16 bytes.
#define TALL 128
#define DEPTH 64
#define THREADS 256
#include "cuda/tile_products.inc"
#if WGMMA
#define WIDE 256
#define STAGES 4  // one more than without: products of the step before may still read theirs
#else
#define WIDE 128
#define STAGES 3
#endif
#define MOST_EXPERTS 1024

// A tile is panels of 64 x 64 elements; its rows have 128 bytes, placed as wgmma calls swizzled. A panel holds 64 lines
// (columns of the other factor) by DEPTH, or where SUMS_ROWS is true DEPTH rows by 64 lines.
#define PANEL_BYTES (64 * 128)
#define LEFT_BYTES (TALL / 64 * PANEL_BYTES)
#define STAGE_BYTES (LEFT_BYTES + WIDE / 64 * PANEL_BYTES)
#define LEFT_SUMS_ROWS (FORM == 2)
#define RIGHT_SUMS_ROWS (FORM != 0)

DEVICE u32 chunk_at(u32 row, u32 chunk) {
  return (row * 8 + (chunk ^ (row & 7))) << 4;
}

struct Factor {
  const Element* at;
  i64 stride;
  int end;  // of lines
};

// Zeros beyond the factor's lines and beyond `deepest`.
template <bool SUMS_ROWS, int PANELS>
DEVICE void copy_tile(u32 tile, const Factor& from, int first, int deep, int deepest) {
  const u32 row = threadIdx.x / 8, chunk = threadIdx.x % 8;
  const u32 to = tile + chunk_at(row, chunk);
#pragma unroll
  for (int i = 0; i < PANELS * 2; ++i) {
    const int r = (int)row + i % 2 * 32, c = (int)chunk * 8;
    const int line = first + i / 2 * 64 + (SUMS_ROWS ? c : r), depth = deep + (SUMS_ROWS ? r : c);
    const i64 at = SUMS_ROWS ? depth * from.stride + line : line * from.stride + depth;
    copy_chunk(to + i * (PANEL_BYTES / 2), from.at + at, line < from.end && depth < deepest);
  }
}

// d = or += the left tile's lines of the warp times the right tile.
template <bool ADDS>
DEVICE void multiply_tiles(float (&d)[WIDE / 8][4], u32 stage) {
  const int warp = uniform(threadIdx.x >> 5);
#if WGMMA
  const u64 a = matrix(stage + (warp >> 2) * PANEL_BYTES, 1024, 1, PANEL_BYTES);
  const u64 b = matrix(stage + LEFT_BYTES, 1024, 1, PANEL_BYTES);
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) {
    const u64 left = a + (k * (LEFT_SUMS_ROWS ? 2048 : 32) >> 4), right = b + (k * (RIGHT_SUMS_ROWS ? 2048 : 32) >> 4);
    if (ADDS || k > 0) {
      multiply<true, LEFT_SUMS_ROWS, RIGHT_SUMS_ROWS>(d, left, right);
    } else {
      multiply<false, LEFT_SUMS_ROWS, RIGHT_SUMS_ROWS>(d, left, right);
    }
  }
#else
  const int lane = threadIdx.x & 31, low = lane & 15, high = lane >> 4;
  const int third = (lane & 7) + (high << 3), second = (lane >> 3) & 1;
  if (!ADDS) clear(d);
#pragma unroll
  for (int k = 0; k < DEPTH / 16; ++k) {
    u32 a[4];
    if (LEFT_SUMS_ROWS) {
      load_transposed(a, stage + (warp >> 2) * PANEL_BYTES + chunk_at(k * 16 + third, (warp & 3) * 2 + second));
    } else {
      load_matrices(a, stage + chunk_at(warp * 16 + low, k * 2 + high));
    }
#pragma unroll
    for (int n = 0; n < WIDE / 8; n += 2) {
      u32 b[4];
      const u32 right = stage + LEFT_BYTES;
      if (RIGHT_SUMS_ROWS) {
        load_transposed(b, right + n / 8 * PANEL_BYTES + chunk_at(k * 16 + low, n % 8 + high));
      } else {
        load_matrices(b, right + chunk_at(n * 8 + third, k * 2 + second));
      }
      multiply_add(d[n], a, b[0], b[1]);
      multiply_add(d[n + 1], a, b[2], b[3]);
    }
  }
#endif
}

// d = the block's lines times its columns, summed over [begin, end), which is not empty.
DEVICE void multiply_all(float (&d)[WIDE / 8][4], u32 shared, const Factor& left, int first_line, const Factor& right,
                         int first_column, int begin, int end) {
  const auto copy = [&](int step) {
    const int deep = begin + step * DEPTH;
    if (deep < end) {
      const u32 stage = shared + step % STAGES * STAGE_BYTES;
      copy_tile<LEFT_SUMS_ROWS, TALL / 64>(stage, left, first_line, deep, end);
      copy_tile<RIGHT_SUMS_ROWS, WIDE / 64>(stage + LEFT_BYTES, right, first_column, deep, end);
    }
    end_copies();
  };
  const auto await_tile = [&] {
    await_copies<1>();
    show_products();
    __syncthreads();
  };
  copy(0);
  copy(1);
  await_tile();
  begin_products();
  multiply_tiles<false>(d, shared);
  end_products();
  copy(2);
  for (int step = 1; begin + step * DEPTH < end; ++step) {
    await_tile();
    begin_products();
    multiply_tiles<true>(d, shared + step % STAGES * STAGE_BYTES);
    end_products();
    copy(step + 2);
    await_products<1>();
  }
  await_products<0>();
  settle(d);
}

#if FORM != 2
DEVICE void store_tile(Element* out, int columns, int first_line, int end, int first_column,
                       const float (&d)[WIDE / 8][4]) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int line = first_line + warp * 16 + (lane >> 2) + side * 8;
#pragma unroll
    for (int n = 0; n < WIDE / 8; n += 4) {
      const auto word = [&](int i) { return PACK(d[n + i][2 * side], d[n + i][2 * side + 1]); };
      const uint4 chunk = whole_chunk(word(0), word(1), word(2), word(3), lane);
      const int column = first_column + (n + (lane & 3)) * 8;
      if (line < end && column < columns) *reinterpret_cast<uint4*>(out + (i64)line * columns + column) = chunk;
    }
  }
}

// borders: where each expert's rows end, then how many tiles of TALL rows all experts up to it have.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    expert_product(Element* out, const Element* left, const Element* weight, const int* borders, int experts,
                   int columns, int depth, int most_tiles) {
  extern __shared__ __align__(1024) u8 shared[];
  // Neighbouring blocks make neighbouring tiles: as many columns at a time as lie in eight.
  const int wide = (columns + WIDE - 1) / WIDE, of_group = 8 * most_tiles, group = blockIdx.x / of_group;
  const int in_group = blockIdx.x % of_group, group_columns = min(wide - group * 8, 8);
  const int tile = in_group / group_columns, column = (group * 8 + in_group % group_columns) * WIDE;
  const int* const tile_ends = borders + experts;
  if (tile >= tile_ends[experts - 1]) return;
  int low = 0, high = experts - 1;  // the first expert whose tiles end behind this one
  while (low < high) {
    const int middle = (low + high) / 2;
    if (tile < tile_ends[middle]) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const int expert = uniform(low);
  const int begin = expert == 0 ? 0 : borders[expert - 1], end = borders[expert];
  const int line = begin + (tile - (expert == 0 ? 0 : tile_ends[expert - 1])) * TALL;
  const Factor rows = {left, depth, end};
  const Factor own = {weight + (i64)expert * columns * depth, FORM == 0 ? depth : columns, columns};
  float d[WIDE / 8][4];
  multiply_all(d, shared_address(shared), rows, line, own, column, 0, depth);
  store_tile(out, columns, line, end, column, d);
}

// From rows by rank that sent them and expert, [senders, experts]. One block.
extern "C" __global__ void __launch_bounds__(THREADS)
    expert_borders(int* borders, const i64* held, int senders, int experts) {
  __shared__ int counts[MOST_EXPERTS];
  for (int e = threadIdx.x; e < experts; e += THREADS) {
    i64 count = 0;
    for (int s = 0; s < senders; ++s) count += held[s * experts + e];
    counts[e] = (int)count;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  int rows = 0, tiles = 0;
  for (int e = 0; e < experts; ++e) {
    rows += counts[e];
    tiles += (counts[e] + TALL - 1) / TALL;
    borders[e] = rows;
    borders[experts + e] = tiles;
  }
}
#else
DEVICE void add_tile(float* gradient, int lines, int columns, int first_line, int first_column,
                     const float (&d)[WIDE / 8][4], bool adds) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
#pragma unroll
  for (int side = 0; side < 2; ++side) {
    const int line = first_line + warp * 16 + (lane >> 2) + side * 8;
    float* const to = gradient + (i64)line * columns;
#pragma unroll
    for (int n = 0; n < WIDE / 8; ++n) {
      const int column = first_column + n * 8 + (lane & 3) * 2;
      if (line >= lines || column >= columns) continue;
      float2* const place = reinterpret_cast<float2*>(to + column);
      float2 sum = make_float2(d[n][2 * side], d[n][2 * side + 1]);
      if (adds) {
        const float2 before = *place;
        sum.x += before.x, sum.y += before.y;
      }
      *place = sum;
    }
  }
}

// A block of threads for each tile (x) of each expert (y). Where nothing is added what was there is not read.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
    expert_gradient(float* gradient, const Element* left, const Element* right, const int* borders, int lines,
                    int columns, int adds) {
  extern __shared__ __align__(1024) u8 shared[];
  const int expert = blockIdx.y;
  const int begin = expert == 0 ? 0 : borders[expert - 1], end = borders[expert];
  if (begin == end && adds) return;
  const int tall = (lines + TALL - 1) / TALL, wide = (columns + WIDE - 1) / WIDE;
  const int of_group = 8 * tall, group = blockIdx.x / of_group;
  const int in_group = blockIdx.x % of_group, group_columns = min(wide - group * 8, 8);
  const int line = in_group / group_columns * TALL, column = (group * 8 + in_group % group_columns) * WIDE;
  float d[WIDE / 8][4];
  clear(d);
  if (begin < end) {
    multiply_all(d, shared_address(shared), {left, lines, lines}, line, {right, columns, columns}, column, begin, end);
  }
  add_tile(gradient + (i64)expert * lines * columns, lines, columns, line, column, d, adds != 0);
}
#endif
