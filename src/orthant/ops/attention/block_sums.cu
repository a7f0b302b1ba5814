// variant ELEMENT=0: at most 64 registers
// all ELEMENT=0,1
//
// Joins what attention over one block of keys gives to the softmax of the keys seen before: out [queries, heads, size]
// and lse [heads, queries], both float32, take the part of the block. A thread has 8 channels of a query's head; the
// threads of one head are neighbours in a block of threads, which writes lse when all of it have read it.
struct Places {  // strides in elements
  i64 out_query, lse_head;
  i64 block_query, block_head, block_lse_head;
};
extern "C" __global__ void __launch_bounds__(256)
    join_block(float* out, float* lse, const Element* block_out, const float* block_lse, i64 pairs, int heads, int size,
               Places places) {
  const int vectors = size / LANE, pairs_here = (int)blockDim.x / vectors;
  const int own = (int)threadIdx.x / vectors, at = (int)threadIdx.x % vectors * LANE;
  const i64 pair = (i64)blockIdx.x * pairs_here + own;
  const bool works = own < pairs_here && pair < pairs;
  const i64 query = works ? pair / heads : 0;
  const int head = works ? (int)(pair % heads) : 0;
  float* const kept = lse + head * places.lse_head + query;
  const float before = *kept, here = block_lse[head * places.block_lse_head + query];
  const float most = fmaxf(before, here);
  const bool sees = most > __uint_as_float(0xff800000u);  // -infinity: neither saw a key
  const float joined = sees ? most + logf(expf(before - most) + expf(here - most)) : most;
  const float scale = sees ? expf(before - joined) : 0.0f, block_scale = sees ? expf(here - joined) : 0.0f;
  __syncthreads();
  if (!works) return;
  if (at == 0) *kept = joined;
  float4* const sums = reinterpret_cast<float4*>(out + query * places.out_query + (i64)head * size + at);
  float x[LANE];
  widen(*reinterpret_cast<const uint4*>(block_out + query * places.block_query + head * places.block_head + at), x);
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
