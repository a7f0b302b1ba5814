// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=1 ALIGNED=0: at most 80 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Activations of x [rows, width] element by element, with the dropout behind them. A thread takes VECTORS vectors, a
// block's threads apart. Values are written with explicit roundings, so that forward and backward have the same bits.
#define THREADS 256
#define VECTORS 2

// The activation of x and its derivative.
struct Activated {
  float value, slope;
};

#define INVERSE_ROOT_2_PI 0.3989422804f
#if ELEMENT == 2
struct Gelu {
  DEVICE static Activated at(float x) {
    const float below = 0.5f * erfcf(x * -0.7071067812f);
    return {__fmul_rn(x, below), fmaf(x * INVERSE_ROOT_2_PI, expf(-0.5f * x * x), below)};
  }
};
#else
// Of a standard normal variable the share `tail` lies beyond |x|. Its logarithm is nearly a polynomial: that of degree
// 7 is within a relative error of 3e-6 up to |x| = 5, and GELU within 5e-7.
struct Gelu {
  DEVICE static Activated at(float x) {
    const float a = fabsf(x);
    float power = fmaf(-1.704750957e-06f, a, 5.945525481e-05f);
    power = fmaf(power, a, -0.0009168864926f);
    power = fmaf(power, a, 0.008465720341f);
    power = fmaf(power, a, -0.0538947694f);
    power = fmaf(power, a, -0.4585110843f);
    power = fmaf(power, a, -1.151239038f);
    const float tail = fast_exp2(fmaf(power, a, -0.9999957681f));
    const float density = fast_exp2(__fmul_rn(__fmul_rn(-0.5f * LOG2_E, x), x));
    return {fmaf(-a, tail, fmaxf(x, 0.0f)),
            fmaf(__fmul_rn(INVERSE_ROOT_2_PI, x), density, x < 0.0f ? tail : __fadd_rn(1.0f, -tail))};
  }
};
#endif
// 0.5 x (1 + tanh u) = x sigmoid(2 u) with u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanh {
  DEVICE static Activated at(float x) {
    constexpr float kTwice = 1.595769122f, kCubic = 0.044715f;
    const float square = __fmul_rn(x, x);
    const float s = sigmoid(__fmul_rn(__fmul_rn(kTwice, x), fmaf(kCubic, square, 1.0f)));
    const float d_u = kTwice * fmaf(3.0f * kCubic, square, 1.0f);
    return {__fmul_rn(x, s), fmaf(x * s * (1.0f - s), d_u, s)};
  }
};
struct Relu {
  DEVICE static Activated at(float x) { return {x <= 0.0f ? 0.0f : x, x <= 0.0f ? 0.0f : 1.0f}; }
};
struct Silu {
  DEVICE static Activated at(float x) {
    const float s = sigmoid(x);
    const float silu = __fmul_rn(x, s);
    return {silu, fmaf(silu, 1.0f - s, s)};
  }
};

// out = activation, dropped where the grid says so.
template <class Kind>
DEVICE void activate(Element* out, const Element* x, const Vectors& all, const KeyedGrid& grid) {
  const u32 begin = blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
  uint4 kept[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) kept[v] = load_vector(x, all, begin + v * THREADS);
  float factors[VECTORS][LANE];
  if (grid.threshold != 0) draw_vectors(grid, all, begin, THREADS, factors);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE];
    widen(kept[v], a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) a[j] = Kind::at(a[j]).value;
    if (grid.threshold != 0) {
      round_all(a);
      kept[v] = dropped_vector(factors[v], a);
    } else {
      kept[v] = narrow(a);
    }
    store_vector(out, all, begin + v * THREADS, kept[v]);
  }
}

// d_x; where `wants` is set the activation, with the bits of activate(), takes the place of its gradient d. Both are
// dropped where the grid says so.
template <class Kind>
DEVICE void gradient(Element* d_x, Element* d, const Element* x, const Vectors& all, int wants, const KeyedGrid& grid) {
  const u32 begin = blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
  uint4 kept_x[VECTORS], kept_d[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    kept_x[v] = load_vector(x, all, begin + v * THREADS);
    kept_d[v] = load_vector(d, all, begin + v * THREADS);
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE], g[LANE], factors[LANE];
    widen(kept_x[v], a);
    widen(kept_d[v], g);
    if (grid.threshold != 0) {
      const Place place = place_of(all, begin + v * THREADS);
      draw_factors(grid, stream_of(grid), block_of_row(grid, place.row), place.at, factors);
#pragma unroll
      for (int j = 0; j < LANE; ++j) g[j] = __fmul_rn(g[j], factors[j]);
      round_all(g);
    }
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const Activated activated = Kind::at(a[j]);
      g[j] = __fmul_rn(g[j], activated.slope);
      a[j] = activated.value;
    }
    store_vector(d_x, all, begin + v * THREADS, narrow(g));
    if (!wants) continue;
    if (grid.threshold != 0) {
      round_all(a);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fmul_rn(a[j], factors[j]);
    }
    store_vector(d, all, begin + v * THREADS, narrow(a));
  }
}

#define KERNELS(KIND, NAME)                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
      NAME(Element* out, const Element* x, Vectors all, KeyedGrid grid) {                                   \
    activate<KIND>(out, x, all, grid);                                                                      \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
      NAME##_gradient(Element* d_x, Element* d, const Element* x, Vectors all, int wants, KeyedGrid grid) { \
    gradient<KIND>(d_x, d, x, all, wants, grid);                                                            \
  }
KERNELS(Gelu, gelu)
KERNELS(GeluTanh, gelu_tanh)
KERNELS(Relu, relu)
KERNELS(Silu, silu)
