// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Rotary positions of the joined projection's output, qkv [tokens, heads, size] with queries first, then keys, then
// values. A thread takes LANE channels of the first half of a head and those they turn with in the second half. Tables
// are [positions, size / 2]; `turn` is 1 forward and -1 backward.
DEVICE void turn_pair(float (&a)[LANE], float (&b)[LANE], const float* cosines, const float* sines, int at, int half,
                      float turn) {
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    if (at + j >= half) break;
    const float c = cosines[at + j], s = sines[at + j] * turn;
    const float first = a[j] * c - b[j] * s, second = b[j] * c + a[j] * s;
    a[j] = first;
    b[j] = second;
  }
}

// Turns the first `turned` heads of every token in place, by `positions` of tokens where not null.
extern "C" __global__ void __launch_bounds__(256)
    rotate(Element* qkv, const float* cosines, const float* sines, const i64* positions, i64 pairs, int sequence,
           int heads, int turned, int size) {
  const int half = size / 2, vectors = (half + LANE - 1) / LANE;
  const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= pairs) return;
  const int at = (int)(index % vectors) * LANE;
  const i64 place = index / vectors;
  const i64 token = place / turned;
  Element* first = qkv + (token * heads + place % turned) * size;
  const i64 position = positions == nullptr ? token % sequence : positions[token];
  float a[LANE], b[LANE];
  widen(load_vector(first, at, half), a);
  widen(load_vector(first + half, at, half), b);
  turn_pair(a, b, cosines + position * half, sines + position * half, at, half, 1.0f);
  store_vector(first, at, half, narrow(a));
  store_vector(first + half, at, half, narrow(b));
}

// d_qkv from the gradients of queries, keys and values, each [rows, heads, sequence, size] by its strides in elements:
// queries and keys are turned back, where there are tables.
struct Strided {
  const Element* data;
  i64 row, head, position;
};
extern "C" __global__ void __launch_bounds__(256)
    join(Element* d_qkv, Strided q, Strided k, Strided v, const float* cosines, const float* sines, i64 pairs,
         int sequence, int q_heads, int kv_heads, int size) {
  const int half = size / 2, vectors = (half + LANE - 1) / LANE, heads = q_heads + 2 * kv_heads;
  const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= pairs) return;
  const int at = (int)(index % vectors) * LANE;
  const i64 place = index / vectors;
  const i64 token = place / heads;
  const int head = (int)(place % heads);
  const i64 row = token / sequence, position = token % sequence;
  const bool is_q = head < q_heads, is_v = head >= q_heads + kv_heads;
  const Strided& from = is_q ? q : is_v ? v : k;
  const int own_head = is_q ? head : is_v ? head - q_heads - kv_heads : head - q_heads;
  const Element* source = from.data + row * from.row + own_head * from.head + position * from.position;
  Element* first = d_qkv + place * size;
  float a[LANE], b[LANE];
  widen(load_vector(source, at, half), a);
  widen(load_vector(source + half, at, half), b);
  if (!is_v && cosines != nullptr) {
    turn_pair(a, b, cosines + position * half, sines + position * half, at, half, -1.0f);
  }
  store_vector(first, at, half, narrow(a));
  store_vector(first + half, at, half, narrow(b));
}
