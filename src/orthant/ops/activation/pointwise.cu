// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=1 ALIGNED=0: at most 80 registers
// variant ELEMENT=0 ALIGNED=1 UNPADDED=1: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1 UNPADDED=0,1
//
// Activations of x [rows, width] element by element, with the dropout behind them. A thread takes a pair
// of vectors. Values are written with explicit roundings, so that forward and backward have the same bits.
#define THREADS 256

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
// Of a standard normal variable the share `tail` lies beyond |x|. Its logarithm is nearly a polynomial. That of degree
// 7 is within a relative error of 3e-6 up to |x| = 5, and GELU within 5e-7. That of degree 5 is within 2e-4, a tenth of
// what rounding to bfloat16 brings, and within 1e-5 around |x| = 0.75, where the slope passes 0.
struct Gelu {
  DEVICE static float log_tail(float a) {
#if ELEMENT == 0
    float power = fmaf(-0.000277798943f, a, 0.005392231979f);
    power = fmaf(power, a, -0.04670184851f);
    power = fmaf(power, a, -0.4663536549f);
    power = fmaf(power, a, -1.14792979f);
    return fmaf(power, a, -1.000272036f);
#else
    float power = fmaf(-1.704750957e-06f, a, 5.945525481e-05f);
    power = fmaf(power, a, -0.0009168864926f);
    power = fmaf(power, a, 0.008465720341f);
    power = fmaf(power, a, -0.0538947694f);
    power = fmaf(power, a, -0.4585110843f);
    power = fmaf(power, a, -1.151239038f);
    return fmaf(power, a, -0.9999957681f);
#endif
  }
  DEVICE static Activated at(float x) {
    const float a = fabsf(x);
    const float tail = fast_exp2(log_tail(a));
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

// out = activation; DROPS: dropped as the grid says. The branch keeps the draw where x is still under way.
template <class Kind, bool DROPS>
DEVICE void activate(Element* out, const Element* x, const Vectors& all, const KeyedGrid& grid) {
  const Pair pair = own_pair(all);
  uint4 kept[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) kept[v] = load_vector(x, all, pair, v);
  Draw draws[2];
  if (DROPS) {
    if (grid.threshold != 0) {
      draw_pair(grid, all, pair, draws);
    } else {
      draws[0] = draws[1] = {~0u, ~0u, ~0u, ~0u};
    }
  }
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float a[LANE];
    widen(kept[v], a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) a[j] = Kind::at(a[j]).value;
    if (DROPS) {
      round_all(a);
      kept[v] = dropped_vector(grid, draws[v], a);
    } else {
      kept[v] = narrow(a);
    }
    store_vector(out, all, pair, v, kept[v]);
  }
}

// d_x; where `wants` is set the activation, with the bits of activate(), takes the place of its gradient d. Both are
// dropped where the grid says so.
template <class Kind>
DEVICE void gradient(Element* d_x, Element* d, const Element* x, const Vectors& all, int wants, const KeyedGrid& grid) {
  const Pair pair = own_pair(all);
  uint4 kept_x[2], kept_d[2];
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    kept_x[v] = load_vector(x, all, pair, v);
    kept_d[v] = load_vector(d, all, pair, v);
  }
#pragma unroll
  for (int v = 0; v < 2; ++v) {
    float a[LANE], g[LANE], factors[LANE];
    widen(kept_x[v], a);
    widen(kept_d[v], g);
    if (grid.threshold != 0) {
      draw_factors(grid, stream_of(grid), block_of_row(grid, pair.row), (int)vector_of(all, pair, v) * LANE, factors);
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
    store_vector(d_x, all, pair, v, narrow(g));
    if (!wants) continue;
    if (grid.threshold != 0) {
      round_all(a);
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fmul_rn(a[j], factors[j]);
    }
    store_vector(d, all, pair, v, narrow(a));
  }
}

#define KERNELS(KIND, NAME)                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME(Element* out, const Element* x, Vectors all) { \
    activate<KIND, false>(out, x, all, KeyedGrid());                                                        \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
      NAME##_dropout(Element* out, const Element* x, Vectors all, KeyedGrid grid) {                         \
    activate<KIND, true>(out, x, all, grid);                                                                \
  }                                                                                                         \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                     \
      NAME##_gradient(Element* d_x, Element* d, const Element* x, Vectors all, int wants, KeyedGrid grid) { \
    gradient<KIND>(d_x, d, x, all, wants, grid);                                                            \
  }
KERNELS(Gelu, gelu)
KERNELS(GeluTanh, gelu_tanh)
KERNELS(Relu, relu)
KERNELS(Silu, silu)
