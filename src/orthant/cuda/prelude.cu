// What all kernels share: the element type that ELEMENT chooses, loads and stores of 16 bytes, sums over a warp and a
// row, factors of dropout. Arithmetic is float32; conversions round to nearest, ties to even.
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

// A kernel that is started early (LaunchShape) begins when all blocks of the one before came to let_next_begin() or
// ended, and waits until all before it is done and to be seen: it writes nothing before that, and reads only what none
// of them writes.
DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void await_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

DEVICE u32 pack_bfloat16(float low, float high) {
  u32 packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE u32 pack_float16(float low, float high) {
  u32 packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}
DEVICE float from_float16(u16 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

#ifndef ELEMENT
#define ELEMENT 2
#endif
#if ELEMENT == 2
typedef float Element;
#define LANE 4  // elements of a 16-byte vector
DEVICE float widened(Element x) {
  return x;
}
DEVICE Element narrowed(float x) {
  return x;
}
#else
typedef u16 Element;
#define LANE 8
#if ELEMENT == 0
DEVICE float widened(Element x) {
  return __uint_as_float((u32)x << 16);
}
DEVICE Element narrowed(float x) {
  return (u16)pack_bfloat16(x, 0.0f);
}
#define PACK pack_bfloat16
#else
DEVICE float widened(Element x) {
  return from_float16(x);
}
DEVICE Element narrowed(float x) {
  return (u16)pack_float16(x, 0.0f);
}
#define PACK pack_float16
#endif
#endif
#if ELEMENT != 2
// d [16, 8] += a [16, 16] b [16, 8] by a warp. A lane has of d rows lane / 4 and 8 further on, columns 2 (lane % 4) and
// the next; of a the same rows, these columns and 8 further on; of b these as rows, column lane / 4.
DEVICE void multiply_add(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
#if ELEMENT == 0
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
  asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// What a store and a load in between would make of x.
DEVICE float rounded(float x) {
  return widened(narrowed(x));
}

// 2^x and 1 / x within two units of float32's last place; numbers below its normal range are 0.
DEVICE float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
DEVICE float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#define LOG2_E 1.4426950409f

DEVICE float sigmoid(float x) {
#if ELEMENT == 2
  return 1.0f / (1.0f + expf(-x));
#else
  return fast_reciprocal(__fadd_rn(1.0f, fast_exp2(__fmul_rn(-LOG2_E, x))));
#endif
}

DEVICE void widen(const uint4& v, float (&x)[LANE]) {
  const u32 words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if ELEMENT == 2
    x[i] = __uint_as_float(words[i]);
#elif ELEMENT == 0
    x[2 * i] = __uint_as_float(words[i] << 16);
    x[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
#else
    x[2 * i] = from_float16((u16)(words[i] & 0xffffu));
    x[2 * i + 1] = from_float16((u16)(words[i] >> 16));
#endif
  }
}
DEVICE uint4 narrow(const float (&x)[LANE]) {
#if ELEMENT == 2
  return make_uint4(__float_as_uint(x[0]), __float_as_uint(x[1]), __float_as_uint(x[2]), __float_as_uint(x[3]));
#else
  return make_uint4(PACK(x[0], x[1]), PACK(x[2], x[3]), PACK(x[4], x[5]), PACK(x[6], x[7]));
#endif
}

// What a store and a load in between would make of them.
DEVICE void round_all(float (&x)[LANE]) {
  widen(narrow(x), x);
}

// Elements [at, at + LANE) of a row of `size`; those beyond its end are 0 and are not written. ALIGNED: rows begin at
// multiples of 16 bytes and `size` is a multiple of LANE.
#ifndef ALIGNED
#define ALIGNED 1
#endif
DEVICE uint4 load_vector(const Element* row, int at, int size) {
#if ALIGNED
  return at < size ? *reinterpret_cast<const uint4*>(row + at) : make_uint4(0, 0, 0, 0);
#else
  uint4 v = make_uint4(0, 0, 0, 0);
  Element* parts = reinterpret_cast<Element*>(&v);
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    if (at + j < size) parts[j] = row[at + j];
  }
  return v;
#endif
}
DEVICE void store_vector(Element* row, int at, int size, const uint4& v) {
#if ALIGNED
  if (at < size) *reinterpret_cast<uint4*>(row + at) = v;
#else
  const Element* parts = reinterpret_cast<const Element*>(&v);
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    if (at + j < size) row[at + j] = parts[j];
  }
#endif
}

// Copies of 16 bytes into shared memory that a thread starts and awaits by groups; zeros where not `inside`.
DEVICE u32 shared_address(const void* p) {
  return (u32)__cvta_generic_to_shared(p);
}
DEVICE void copy_chunk(u32 to, const Element* from, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0));
}
DEVICE void end_copies() {
  asm volatile("cp.async.commit_group;");
}
template <int Newer>
DEVICE void await_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Newer));
}

// In one fixed order; every lane has the result.
DEVICE float warp_sum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}
DEVICE float warp_maximum(float x) {
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}
// Of a row that WARPS neighbouring warps of a block share: every thread of them has the result. All threads of the
// block call it when WARPS > 1. `scratch` has a place for each warp of the block.
template <int WARPS_OF_ROW>
DEVICE float row_sum(float x, float* scratch) {
  x = warp_sum(x);
  if (WARPS_OF_ROW == 1) return x;
  const int warp = threadIdx.x >> 5;
  __syncthreads();
  if ((threadIdx.x & 31) == 0) scratch[warp] = x;
  __syncthreads();
  const int first = warp / WARPS_OF_ROW * WARPS_OF_ROW;
  x = 0;
#pragma unroll
  for (int w = 0; w < WARPS_OF_ROW; ++w) x += scratch[first + w];
  return x;
}

// Rows of a block, of which there are gridDim.x: neighbours, as many as another block has or one more.
struct Rows {
  int begin, end;
};
DEVICE Rows own_rows(int rows) {
  const u32 least = (u32)rows / gridDim.x, longer = (u32)rows % gridDim.x, block = blockIdx.x;
  const u32 begin = block * least + min(block, longer);
  return {(int)begin, (int)(begin + least + (block < longer ? 1u : 0u))};
}

// n / divisor for n below 2^31.
struct Divisor {
  u32 factor, shift;
};
DEVICE u32 divided(u32 n, const Divisor& by) {
  return (u32)((u64)n * by.factor >> by.shift);
}

// A matrix of rows of `width` elements as 16-byte vectors, `row_vectors` to a row, the last of which may be cut short.
// A thread takes a pair of a row's vectors, p and p + row_pairs: half a row apart, so that neighbours of a warp are
// neighbours in memory. The second of a row's last pair may lie beyond the row.
struct Vectors {
  u32 pairs, row_vectors, row_pairs;
  Divisor by_row;  // row_pairs
  int width;
};
struct Pair {
  int row;
  u32 first;  // vector of the row; row_vectors: beyond the matrix
};
DEVICE Pair own_pair(const Vectors& all) {
  const u32 index = blockIdx.x * blockDim.x + threadIdx.x;
  const u32 row = divided(index, all.by_row);
  return {(int)row, index < all.pairs ? index - row * all.row_pairs : all.row_vectors};
}
// Which of the row's vectors v = 0 and 1 are.
DEVICE u32 vector_of(const Vectors& all, const Pair& pair, int v) {
  return pair.first + v * all.row_pairs;
}
// Of those beyond the row or the matrix nothing is read or written.
DEVICE uint4 load_vector(const Element* x, const Vectors& all, const Pair& pair, int v) {
  const u32 vector = vector_of(all, pair, v);
#if ALIGNED
  if (vector >= all.row_vectors) return make_uint4(0, 0, 0, 0);
  return reinterpret_cast<const uint4*>(x)[pair.row * all.row_vectors + vector];
#else
  return load_vector(x + (i64)pair.row * all.width, (int)vector * LANE, all.width);
#endif
}
DEVICE void store_vector(Element* x, const Vectors& all, const Pair& pair, int v, const uint4& value) {
  const u32 vector = vector_of(all, pair, v);
#if ALIGNED
  if (vector < all.row_vectors) reinterpret_cast<uint4*>(x)[pair.row * all.row_vectors + vector] = value;
#else
  store_vector(x + (i64)pair.row * all.width, (int)vector * LANE, all.width, value);
#endif
}

// A dropout site's factors over the rows of a matrix, as DropoutGrid (ops/dropout/dropout.h) has them. A threshold of 0
// drops nothing; at 2^16 the factor is 0.
struct Grid {
  u64 stream;
  const u64* stream_at;  // where the stream is, when not null: there it may change between plays of a recorded step
  u64 first_row;
  u32 key0, key1;
  u32 threshold;
  float factor;
  u32 positions, first_token, first_position, first_channel;
  u32 second_piece, jump;  // positions of columns from second_piece on are `jump` further
  Divisor by_positions;
};
#ifndef UNPADDED
#define UNPADDED 0
#endif
// With both words of the key of each round: constants that a start brings save the instructions that make them.
// UNPADDED: rows and positions of tokens lie in memory.
struct KeyedGrid : Grid {
  u32 round_keys[20];
#if UNPADDED
  const i64* token_rows;       // of each of the `positions` tokens its row of the microbatch
  const i64* token_positions;  // and its position in the row
#endif
};
DEVICE u32 round_key(const Grid& grid, int round, int word) {
  return word == 0 ? grid.key0 + round * 0x9E3779B9u : grid.key1 + round * 0xBB67AE85u;
}
DEVICE u32 round_key(const KeyedGrid& grid, int round, int word) {
  return grid.round_keys[2 * round + word];
}

// The grid's stream, wherever it is.
DEVICE u64 stream_of(const Grid& grid) {
  return grid.stream_at == nullptr ? grid.stream : __ldg(grid.stream_at);
}
// Philox 4x32-10 (base/philox.h): four words, whose halves, lower first, belong to elements 8 block to 8 block + 7.
template <class Keys>
DEVICE void draw_block(const Keys& grid, u64 stream, u32 low, u32 high, u32 (&words)[4]) {
  u32 a = low, b = high, c = (u32)stream, d = (u32)(stream >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const u64 p = (u64)0xD2511F53u * a, q = (u64)0xCD9E8D57u * c;
    a = (u32)(q >> 32) ^ b ^ round_key(grid, round, 0);
    b = (u32)q;
    c = (u32)(p >> 32) ^ d ^ round_key(grid, round, 1);
    d = (u32)p;
  }
  words[0] = a, words[1] = b, words[2] = c, words[3] = d;
}

// Whether half i of the words stays. An upper half is compared with what lies below it, which changes nothing.
DEVICE bool stays(const Grid& grid, const u32 (&words)[4], int i) {
  return (i & 1 ? words[i >> 1] : words[i >> 1] << 16) >= grid.threshold << 16;
}
// Bit i: element i of the block stays.
DEVICE u32 kept_bits(const Grid& grid, const u32 (&words)[4]) {
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) bits |= (u32)stays(grid, words, i) << i;
  return bits;
}

// The block of the stream that holds channel 0 of a matrix row; channel c lies in the block c / 8 further.
DEVICE u64 block_of_row(const KeyedGrid& grid, int row) {
  const u32 token = grid.first_token + (u32)row;
#if UNPADDED
  const u32 inside = token < grid.positions ? token : 0;  // of a thread whose matrix has ended
  const u32 batch_row = (u32)__ldg(grid.token_rows + inside), position = (u32)__ldg(grid.token_positions + inside);
#else
  const u32 batch_row = divided(token, grid.by_positions);
  const u32 column = token - batch_row * grid.positions;
  const u32 position = grid.first_position + column + (column >= grid.second_piece ? grid.jump : 0u);
#endif
  const u32 stream_row = (u32)grid.first_row + batch_row;
  return (u64)((stream_row << 8 >> 3) + (position >> 15)) << 32 | position << 17;
}

// What decides about LANE elements of a row from `at` on. Where rows are ALIGNED the grid's first channel is a multiple
// of 8, and a vector lies in one block, whose words these are; others may take a second one, and get bits.
struct Draw {
  u32 words[4];
};
DEVICE Draw draw_vector(const KeyedGrid& grid, u64 stream, u64 row_block, int at) {
  const u32 channel = grid.first_channel + (u32)at;
  const u64 block = row_block | channel >> 3;
  Draw draw;
  draw_block(grid, stream, (u32)block, (u32)(block >> 32), draw.words);
#if ALIGNED
  if (LANE == 4 && (channel & 4u) != 0) draw.words[0] = draw.words[2], draw.words[1] = draw.words[3];
#else
  const u32 skipped = channel & 7u;
  u32 bits = kept_bits(grid, draw.words);
  if (skipped + LANE > 8) {
    draw_block(grid, stream, (u32)(block + 1), (u32)((block + 1) >> 32), draw.words);
    bits |= kept_bits(grid, draw.words) << 8;
  }
  draw.words[0] = bits >> skipped;
#endif
  return draw;
}
DEVICE void factors_of(const Grid& grid, const Draw& draw, float (&factors)[LANE]) {
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    const bool kept = ALIGNED ? stays(grid, draw.words, j) : (draw.words[0] >> j & 1u) != 0;
    factors[j] = kept ? grid.factor : 0.0f;
  }
}
DEVICE void draw_factors(const KeyedGrid& grid, u64 stream, u64 row_block, int at, float (&factors)[LANE]) {
  factors_of(grid, draw_vector(grid, stream, row_block, at), factors);
}

// x times factors, as a dropout of its own would store it.
DEVICE uint4 dropped_vector(const float (&factors)[LANE], float (&x)[LANE]) {
#pragma unroll
  for (int j = 0; j < LANE; ++j) x[j] = __fmul_rn(x[j], factors[j]);
  return narrow(x);
}
DEVICE uint4 dropped_vector(const Grid& grid, const Draw& draw, float (&x)[LANE]) {
  float factors[LANE];
  factors_of(grid, draw, factors);
  return dropped_vector(factors, x);
}
// x being LANE elements of a row from `at` on.
DEVICE uint4 dropped_vector(const KeyedGrid& grid, u64 row_block, int at, float (&x)[LANE]) {
  float factors[LANE];
  draw_factors(grid, stream_of(grid), row_block, at, factors);
  return dropped_vector(factors, x);
}

// The draws of a pair's vectors, which share constants and the row's block.
DEVICE void draw_pair(const KeyedGrid& grid, const Vectors& all, const Pair& pair, Draw (&draws)[2]) {
  const u64 stream = stream_of(grid), block = block_of_row(grid, pair.row);
#pragma unroll
  for (int v = 0; v < 2; ++v) draws[v] = draw_vector(grid, stream, block, (int)vector_of(all, pair, v) * LANE);
}
