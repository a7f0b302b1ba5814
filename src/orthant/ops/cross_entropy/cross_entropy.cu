// variant ELEMENT=0: at most 64 registers
// variant ELEMENT=2: at most 64 registers
// all ELEMENT=0,1,2
//
// Cross entropy of logits [rows, classes] of any width and alignment, whose rows lie `stride` apart; a block takes a
// row, its middle part by vectors. `first` is the global index of column 0, and targets count all classes: a target
// held elsewhere has no column here.
#define THREADS 512
#if ELEMENT == 2
DEVICE float exponential(float x) {
  return expf(x);
}
#else
DEVICE float exponential(float x) {
  return __expf(x);
}
#endif

// A running sum of exp(x - high).
struct Sum {
  float high, total;
};
// Where there is only -infinity so far, its exponential is 0, not NaN.
DEVICE float base_of(float high) {
  return high == -__int_as_float(0x7f800000) ? 0.0f : high;
}
DEVICE void add(Sum& sum, float x) {
  if (x > sum.high) {
    sum.total *= exponential(sum.high - x);
    sum.high = x;
  }
  sum.total += exponential(x - base_of(sum.high));
}
DEVICE Sum joined(const Sum& a, const Sum& b) {
  const float high = fmaxf(a.high, b.high);
  if (high == -__int_as_float(0x7f800000)) return {high, a.total + b.total};  // 0 or NaN
  return {high, a.total * exponential(a.high - high) + b.total * exponential(b.high - high)};
}

// Columns before the first 16-byte border of the row.
DEVICE int unaligned_columns(const Element* row, int classes) {
  const int bytes = (int)((16 - ((u64)row & 15)) & 15);
  return min(bytes / (int)sizeof(Element), classes);
}

// lse[row] = log of the sum of exp(logits) over the columns held here, -infinity without one; chosen[row] = the
// target's logit, 0 where another rank holds it or the target does not count. NaN and infinity come through.
extern "C" __global__ void __launch_bounds__(THREADS)
    log_sum_exp(float* lse, float* chosen, const Element* logits, const i64* targets, i64 stride, int classes,
                i64 first) {
  __shared__ Sum warps[THREADS / 32];
  const Element* row = logits + (i64)blockIdx.x * stride;
  const int head = unaligned_columns(row, classes);
  const int vectors = (classes - head) / LANE;
  const uint4* body = reinterpret_cast<const uint4*>(row + head);
  Sum sum = {-__int_as_float(0x7f800000), 0.0f};
#pragma unroll 4
  for (int i = threadIdx.x; i < vectors; i += THREADS) {
    float x[LANE];
    widen(body[i], x);
    float high = x[0];
#pragma unroll
    for (int j = 1; j < LANE; ++j) high = fmaxf(high, x[j]);
    if (high > sum.high) {
      sum.total *= exponential(sum.high - high);
      sum.high = high;
    }
    const float base = base_of(sum.high);
#pragma unroll
    for (int j = 0; j < LANE; ++j) sum.total += exponential(x[j] - base);
  }
  const int rest = head + vectors * LANE;
  if (threadIdx.x < head) add(sum, widened(row[threadIdx.x]));
  if (rest + threadIdx.x < classes) add(sum, widened(row[rest + threadIdx.x]));
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const Sum other = {__shfl_xor_sync(~0u, sum.high, offset), __shfl_xor_sync(~0u, sum.total, offset)};
    sum = (threadIdx.x & offset) ? joined(other, sum) : joined(sum, other);
  }
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < THREADS / 32; ++w) sum = joined(sum, warps[w]);
  lse[blockIdx.x] = classes > 0 ? sum.high + logf(sum.total) : -__int_as_float(0x7f800000);
  const i64 column = targets[blockIdx.x] - first;
  chosen[blockIdx.x] = column >= 0 && column < classes ? widened(row[column]) : 0.0f;
}

// out = (exp(logits - lse) - onehot) * weights[row] * d_loss, 0 where the weight is 0. May lie over the logits.
extern "C" __global__ void __launch_bounds__(THREADS)
    gradient(Element* out, const Element* logits, const i64* targets, const float* lse, const float* weights,
             const float* d_loss, i64 stride, int classes, i64 first) {
  const i64 place = (i64)blockIdx.x * stride;
  const Element* row = logits + place;
  Element* to = out + place;
  const int head = unaligned_columns(row, classes);
  const int vectors = (classes - head) / LANE;
  const int rest = head + vectors * LANE;
  const i64 target = targets[blockIdx.x] - first;
  const int column = target >= 0 && target < classes ? (int)target : -1;
  const float base = lse[blockIdx.x];
  const float weight = weights[blockIdx.x];
  const float scale = weight * *d_loss;
  const bool counts = weight != 0.0f;
  const uint4* body = reinterpret_cast<const uint4*>(row + head);
  uint4* to_body = reinterpret_cast<uint4*>(to + head);
#pragma unroll 4
  for (int i = threadIdx.x; i < vectors; i += THREADS) {
    float x[LANE];
    widen(body[i], x);
    const int begin = head + i * LANE;
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const float hot = begin + j == column ? 1.0f : 0.0f;
      x[j] = counts ? (exponential(x[j] - base) - hot) * scale : 0.0f;
    }
    to_body[i] = narrow(x);
  }
  for (int side = 0; side < 2; ++side) {
    const int at = side == 0 ? threadIdx.x : rest + threadIdx.x;
    if (at >= (side == 0 ? head : classes)) continue;
    const float hot = at == column ? 1.0f : 0.0f;
    to[at] = narrowed(counts ? (exponential(widened(row[at]) - base) - hot) * scale : 0.0f);
  }
}
