// variant ELEMENT=0: at most 64 registers
// all ELEMENT=0,1
//
// What attention over one block of keys gives, joined to what the blocks before gave, in float32. A thread has 8
// channels of a token's head.

// out [tokens, heads, size] and x [tokens, heads, size]: strides in elements; heads of out are neighbours.
struct Places {
  i64 out_token, token, head;
};

// sums += x
extern "C" __global__ void __launch_bounds__(256)
    add_block(float* sums, const Element* x, i64 vectors, int heads, int size, Places places) {
  const i64 index = (i64)blockIdx.x * 256 + threadIdx.x;
  if (index >= vectors) return;
  const int of_head = size / LANE, at = (int)(index % of_head) * LANE;
  const i64 pair = index / of_head, token = pair / heads;
  const int head = (int)(pair % heads);
  float4* const to = reinterpret_cast<float4*>(sums + token * places.out_token + (i64)head * size + at);
  float a[LANE];
  widen(*reinterpret_cast<const uint4*>(x + token * places.token + head * places.head + at), a);
#pragma unroll
  for (int i = 0; i < LANE / 4; ++i) {
    float4 sum = to[i];
    sum.x += a[4 * i], sum.y += a[4 * i + 1], sum.z += a[4 * i + 2], sum.w += a[4 * i + 3];
    to[i] = sum;
  }
}

// The softmax of the keys seen before, out [queries, heads, size] and lse [heads, queries], takes the block's. Threads
// of one head are neighbours in a block of threads, which writes lse when all of it have read it.
struct LsePlaces {
  i64 head, block_head;
};
extern "C" __global__ void __launch_bounds__(256)
    join_block(float* out, float* lse, const Element* block_out, const float* block_lse, i64 pairs, int heads, int size,
               Places places, LsePlaces lse_places) {
  const int vectors = size / LANE, pairs_here = (int)blockDim.x / vectors;
  const int own = (int)threadIdx.x / vectors, at = (int)threadIdx.x % vectors * LANE;
  const i64 pair = (i64)blockIdx.x * pairs_here + own;
  const bool works = own < pairs_here && pair < pairs;
  const i64 query = works ? pair / heads : 0;
  const int head = works ? (int)(pair % heads) : 0;
  float* const kept = lse + head * lse_places.head + query;
  const float before = *kept, here = block_lse[head * lse_places.block_head + query];
  const float most = fmaxf(before, here);
  const bool sees = most > __uint_as_float(0xff800000u);  // -infinity: neither saw a key
  const float joined = sees ? most + logf(expf(before - most) + expf(here - most)) : most;
  const float scale = sees ? expf(before - joined) : 0.0f, block_scale = sees ? expf(here - joined) : 0.0f;
  __syncthreads();
  if (!works) return;
  if (at == 0) *kept = joined;
  float4* const sums = reinterpret_cast<float4*>(out + query * places.out_token + (i64)head * size + at);
  float x[LANE];
  widen(*reinterpret_cast<const uint4*>(block_out + query * places.token + head * places.head + at), x);
#pragma unroll
  for (int i = 0; i < LANE / 4; ++i) {
    float4 sum = sums[i];
    sum.x = sum.x * scale + x[4 * i] * block_scale;
    sum.y = sum.y * scale + x[4 * i + 1] * block_scale;
    sum.z = sum.z * scale + x[4 * i + 2] * block_scale;
    sum.w = sum.w * scale + x[4 * i + 3] * block_scale;
    sums[i] = sum;
  }
}
