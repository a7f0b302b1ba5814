// variant ELEMENT=2 MASTER=0 COPY=0: at most 80 registers
// variant ELEMENT=2 MASTER=0 COPY=1: at most 80 registers
// variant ELEMENT=2 MASTER=0 COPY=2: at most 80 registers
// variant ELEMENT=2 MASTER=1 COPY=0: at most 80 registers
// variant ELEMENT=0 MASTER=1 COPY=0: at most 80 registers
// variant ELEMENT=1 MASTER=0 COPY=2: at most 80 registers
// all ELEMENT=0,1,2 MASTER=0,1 COPY=0,1,2
//
// Norms and updates over all flat segments of a rank in one pass each. A table says where segments lie; a block takes a
// chunk of CHUNK elements of one of them, so that sums have one order whatever the card. ELEMENT is the gradients'
// type. MASTER 0: parameters are float32, and COPY says which copy of them is written along (0 none, 1 bfloat16, 2
// float16); MASTER 1: parameters are the bfloat16 copy and 16 more bits, see Note [Split master] in master_values.h.
#ifndef MASTER
#define MASTER 0
#endif
#ifndef COPY
#define COPY 0
#endif
#define CHUNK 8192
#define THREADS 256
#define GROUP 4  // neighbours that a thread takes at a time: the lanes of a warp read without gaps
#define AHEAD 2  // groups of a thread whose loads are under way together

// As OptimizerKernels packs it.
struct __align__(16) Segment {
  const Element* gradient;
  float* first;      // exp_avg or momentum; null when there is none
  float* second;     // exp_avg_sq
  void* parameters;  // float32, or with MASTER 1 bfloat16
  u16* rest;         // the copy, or with MASTER 1 the remainders
  i64 count;
  float decay;
  int aligned;  // all of these begin at multiples of 16 bytes
};
static_assert(sizeof(Segment) == 64, "the words of a segment in its table");

// What a step's numbers come to, in float32.
struct StepNumbers {
  float go;      // 0: the update is left out
  float factor;  // gradients are multiplied by it: the clip, and the loss scale
  float lr;
  float step_size;  // lr / (1 - beta1^updates)
  float unbias;     // 1 / sqrt(1 - beta2^updates)
};

struct Rates {
  float first_share;   // 1 - beta1
  float second_keep;   // beta2
  float second_share;  // 1 - beta2
  float eps;
};

struct Part {
  Segment segment;
  i64 begin;
  int count;
  int vectors;  // elements of it that are taken GROUP at a time
};

DEVICE Part part_of(const Segment* segments, const int2* chunks) {
  const int2 place = chunks[blockIdx.x];
  Part part;
  part.segment = segments[place.x];
  part.begin = (i64)place.y * CHUNK;
  const i64 left = part.segment.count - part.begin;
  part.count = left < CHUNK ? (int)left : CHUNK;
  part.vectors = part.segment.aligned ? part.count / GROUP * GROUP : 0;
  return part;
}

DEVICE void load(const float* from, float (&x)[GROUP]) {
  const float4 v = __ldcs(reinterpret_cast<const float4*>(from));
  x[0] = v.x;
  x[1] = v.y;
  x[2] = v.z;
  x[3] = v.w;
}
DEVICE void store(float* to, const float (&x)[GROUP]) {
  __stcs(reinterpret_cast<float4*>(to), make_float4(x[0], x[1], x[2], x[3]));
}
DEVICE void load_gradient(const Element* from, float (&x)[GROUP]) {
#if ELEMENT == 2
  load(from, x);
#else
  const uint2 v = __ldcs(reinterpret_cast<const uint2*>(from));
  x[0] = widened((u16)v.x);
  x[1] = widened((u16)(v.x >> 16));
  x[2] = widened((u16)v.y);
  x[3] = widened((u16)(v.y >> 16));
#endif
}

// The nearest bfloat16 in the upper half, what lies halfway away from zero; one NaN.
DEVICE u32 one_nan(float x) {
  const u32 bits = __float_as_uint(x);
  return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fc00000u : bits;
}
DEVICE u32 upper_half(u32 bits) {
  return (bits + 0x8000u) >> 16;
}
DEVICE float joined(u32 upper, u32 remainder) {
  return __uint_as_float((upper << 16) + (u32)(int)(short)(u16)remainder);
}
DEVICE bool is_finite(u32 bits) {
  return (bits & 0x7f800000u) != 0x7f800000u;
}

// Reads and writes of parameters with what goes along. Those that write say whether all is finite; of parameters in
// halves, whether the upper ones are.
DEVICE void load_parameters(const Segment& segment, i64 at, float (&p)[GROUP]) {
#if MASTER == 1
  const uint2 upper = *reinterpret_cast<const uint2*>(static_cast<const u16*>(segment.parameters) + at);
  const uint2 rest = __ldcs(reinterpret_cast<const uint2*>(segment.rest + at));
  const u32 uppers[2] = {upper.x, upper.y}, rests[2] = {rest.x, rest.y};
#pragma unroll
  for (int i = 0; i < GROUP / 2; ++i) {
    p[2 * i] = joined(uppers[i] & 0xffffu, rests[i] & 0xffffu);
    p[2 * i + 1] = joined(uppers[i] >> 16, rests[i] >> 16);
  }
#else
  load(static_cast<const float*>(segment.parameters) + at, p);
#endif
}
DEVICE bool store_parameters(const Segment& segment, i64 at, const float (&p)[GROUP]) {
  bool finite = true;
#if MASTER == 1 || COPY == 1
  u32 uppers[GROUP / 2];
#if MASTER == 1
  u32 rests[GROUP / 2];
#endif
#pragma unroll
  for (int i = 0; i < GROUP / 2; ++i) {
    const u32 low = one_nan(p[2 * i]), high = one_nan(p[2 * i + 1]);
    uppers[i] = upper_half(low) | (upper_half(high) << 16);
#if MASTER == 1
    rests[i] = (low & 0xffffu) | (high << 16);
    finite &= is_finite(uppers[i] << 16) & is_finite(uppers[i]);
#endif
  }
  const uint2 upper = make_uint2(uppers[0], uppers[1]);
#endif
#if MASTER == 1
  *reinterpret_cast<uint2*>(static_cast<u16*>(segment.parameters) + at) = upper;
  __stcs(reinterpret_cast<uint2*>(segment.rest + at), make_uint2(rests[0], rests[1]));
#else
#pragma unroll
  for (int i = 0; i < GROUP; ++i) finite &= is_finite(__float_as_uint(p[i]));
  store(static_cast<float*>(segment.parameters) + at, p);
#if COPY == 1
  *reinterpret_cast<uint2*>(segment.rest + at) = upper;
#elif COPY == 2
  *reinterpret_cast<uint2*>(segment.rest + at) = make_uint2(pack_float16(p[0], p[1]), pack_float16(p[2], p[3]));
#endif
#endif
  return finite;
}
DEVICE float load_parameter(const Segment& segment, i64 at) {
#if MASTER == 1
  return joined(static_cast<const u16*>(segment.parameters)[at], segment.rest[at]);
#else
  return static_cast<const float*>(segment.parameters)[at];
#endif
}
DEVICE bool store_parameter(const Segment& segment, i64 at, float p) {
#if MASTER == 1
  const u32 bits = one_nan(p), upper = upper_half(bits);
  static_cast<u16*>(segment.parameters)[at] = (u16)upper;
  segment.rest[at] = (u16)bits;
  return is_finite(upper << 16);
#else
  static_cast<float*>(segment.parameters)[at] = p;
#if COPY == 1
  segment.rest[at] = (u16)upper_half(one_nan(p));
#elif COPY == 2
  segment.rest[at] = (u16)pack_float16(p, 0.0f);
#endif
  return is_finite(__float_as_uint(p));
#endif
}

// The formulas of at::_fused_adamw_ and at::_fused_sgd_, in float32, in this order:
//   g = factor g;  p = p - lr decay p
//   m = m + (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g g
//   p = p - step_size m / (unbias sqrt(v) + eps)
DEVICE void adamw_one(float g, float& m, float& v, float& p, const StepNumbers& step, const Rates& rates, float decay) {
  g *= step.factor;
  p = fmaf(-(step.lr * decay), p, p);
  m = fmaf(rates.first_share, g - m, m);
  v = fmaf(rates.second_keep, v, rates.second_share * g * g);
  p = fmaf(-step.step_size, m / fmaf(sqrtf(v), step.unbias, rates.eps), p);
}
//   g = factor g + decay p;  m = momentum m + g;  p = p - lr m
DEVICE void sgd_one(float g, float& m, float& p, const StepNumbers& step, float momentum, float decay) {
  g = fmaf(decay, p, g * step.factor);
  m = fmaf(momentum, m, g);
  p = fmaf(-step.lr, m, p);
}

// Of one thread, before an update. `lr`, `norm` and `loss_scale` (null: 1) are numbers on the device, `finite` a bool.
extern "C" __global__ void step_numbers(const double* lr, const double* norm, const u8* finite,
                                        const double* loss_scale, double clip, double beta1, double beta2,
                                        float* updates, StepNumbers* step) {
  const bool go = *finite != 0;
  double scale = clip > 0 && *norm > clip ? *norm / clip : 1.0;
  if (loss_scale != nullptr) scale *= *loss_scale;
  const float count = *updates + (go ? 1.0f : 0.0f);
  *updates = count;
  step->go = go ? 1.0f : 0.0f;
  step->factor = (float)(1.0 / scale);
  step->lr = (float)*lr;
  step->step_size = (float)(*lr / (1.0 - pow(beta1, (double)count)));
  step->unbias = (float)(1.0 / sqrt(1.0 - pow(beta2, (double)count)));
}

// `verdict` becomes NaN when a parameter that is not finite was written, and stays as it is otherwise.
extern "C" __global__ __launch_bounds__(THREADS, 3) void adamw(const Segment* segments, const int2* chunks,
                                                               const StepNumbers* numbers, float first_share,
                                                               float second_keep, float second_share, float eps,
                                                               double* verdict) {
  const StepNumbers step = *numbers;
  if (step.go == 0.0f) return;
  const Rates rates = {first_share, second_keep, second_share, eps};
  const Part part = part_of(segments, chunks);
  const Segment& segment = part.segment;
  bool finite = true;
  for (int i = threadIdx.x * GROUP; i < part.vectors; i += THREADS * GROUP * AHEAD) {
    float g[AHEAD][GROUP], m[AHEAD][GROUP], v[AHEAD][GROUP], p[AHEAD][GROUP];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      const i64 at = part.begin + i + k * THREADS * GROUP;
      if (i + k * THREADS * GROUP >= part.vectors) break;
      load_gradient(segment.gradient + at, g[k]);
      load(segment.first + at, m[k]);
      load(segment.second + at, v[k]);
      load_parameters(segment, at, p[k]);
    }
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      const i64 at = part.begin + i + k * THREADS * GROUP;
      if (i + k * THREADS * GROUP >= part.vectors) break;
#pragma unroll
      for (int j = 0; j < GROUP; ++j) adamw_one(g[k][j], m[k][j], v[k][j], p[k][j], step, rates, segment.decay);
      store(segment.first + at, m[k]);
      store(segment.second + at, v[k]);
      finite &= store_parameters(segment, at, p[k]);
    }
  }
  for (int i = part.vectors + threadIdx.x; i < part.count; i += THREADS) {
    const i64 at = part.begin + i;
    float m = segment.first[at], v = segment.second[at], p = load_parameter(segment, at);
    adamw_one(widened(segment.gradient[at]), m, v, p, step, rates, segment.decay);
    segment.first[at] = m;
    segment.second[at] = v;
    finite &= store_parameter(segment, at, p);
  }
  if (!finite) *verdict = __longlong_as_double(0x7ff8000000000000);
}

// Without momentum `first` is null.
extern "C" __global__ __launch_bounds__(THREADS, 3) void sgd(const Segment* segments, const int2* chunks,
                                                             const StepNumbers* numbers, float momentum,
                                                             double* verdict) {
  const StepNumbers step = *numbers;
  if (step.go == 0.0f) return;
  const Part part = part_of(segments, chunks);
  const Segment& segment = part.segment;
  bool finite = true;
  for (int i = threadIdx.x * GROUP; i < part.vectors; i += THREADS * GROUP * AHEAD) {
    float g[AHEAD][GROUP], m[AHEAD][GROUP] = {}, p[AHEAD][GROUP];
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      const i64 at = part.begin + i + k * THREADS * GROUP;
      if (i + k * THREADS * GROUP >= part.vectors) break;
      load_gradient(segment.gradient + at, g[k]);
      if (segment.first != nullptr) load(segment.first + at, m[k]);
      load_parameters(segment, at, p[k]);
    }
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) {
      const i64 at = part.begin + i + k * THREADS * GROUP;
      if (i + k * THREADS * GROUP >= part.vectors) break;
#pragma unroll
      for (int j = 0; j < GROUP; ++j) sgd_one(g[k][j], m[k][j], p[k][j], step, momentum, segment.decay);
      if (segment.first != nullptr) store(segment.first + at, m[k]);
      finite &= store_parameters(segment, at, p[k]);
    }
  }
  for (int i = part.vectors + threadIdx.x; i < part.count; i += THREADS) {
    const i64 at = part.begin + i;
    float m = segment.first != nullptr ? segment.first[at] : 0.0f, p = load_parameter(segment, at);
    sgd_one(widened(segment.gradient[at]), m, p, step, momentum, segment.decay);
    if (segment.first != nullptr) segment.first[at] = m;
    finite &= store_parameter(segment, at, p);
  }
  if (!finite) *verdict = __longlong_as_double(0x7ff8000000000000);
}

DEVICE double block_sum(double x) {
  __shared__ double warps[THREADS / 32];
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) x += __shfl_xor_sync(~0u, x, offset);
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = x;
  __syncthreads();
  double sum = 0;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) sum += warps[w];
  return sum;
}

// The sum of squares of each chunk of the gradients, in float64: squares of float32 numbers overflow float32.
extern "C" __global__ __launch_bounds__(THREADS) void squared_chunks(const Segment* segments, const int2* chunks,
                                                                     double* partials) {
  const Part part = part_of(segments, chunks);
  double sum = 0;
#pragma unroll 8
  for (int i = threadIdx.x * GROUP; i < part.vectors; i += THREADS * GROUP) {
    float g[GROUP];
    load_gradient(part.segment.gradient + part.begin + i, g);
#pragma unroll
    for (int j = 0; j < GROUP; ++j) sum = fma((double)g[j], (double)g[j], sum);
  }
  for (int i = part.vectors + threadIdx.x; i < part.count; i += THREADS) {
    const double g = widened(part.segment.gradient[part.begin + i]);
    sum = fma(g, g, sum);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

// A block for each unit, whose chunks are those from first[unit] to first[unit + 1].
extern "C" __global__ __launch_bounds__(THREADS) void squared_norms(const double* partials, const int* first,
                                                                    double* norms) {
  double sum = 0;
  for (int i = first[blockIdx.x] + threadIdx.x; i < first[blockIdx.x + 1]; i += THREADS) sum += partials[i];
  sum = block_sum(sum);
  if (threadIdx.x == 0) norms[blockIdx.x] = sum;
}
