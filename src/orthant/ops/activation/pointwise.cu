// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=1 ALIGNED=0: at most 80 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Activations of x [rows, width] element by element, with the dropout behind them. A thread takes VECTORS vectors, a
// block's threads apart. Values are written with explicit roundings, so that forward and backward have the same bits.
#define THREADS 256
#define VECTORS 2

// The share of a standard normal variable below x, and its density.
struct Normal {
  float below, density;
};
#define INVERSE_ROOT_2_PI 0.3989422804f
#if ELEMENT == 2
DEVICE Normal normal(float x) {
  return {0.5f * erfcf(x * -0.7071067812f), INVERSE_ROOT_2_PI * expf(-0.5f * x * x)};
}
#else
// Within 1e-7: Abramowitz and Stegun, 7.1.26, halved; its exponential is the density's.
DEVICE Normal normal(float x) {
  const float e = fast_exp2(__fmul_rn(__fmul_rn(-0.5f * LOG2_E, x), x));
  const float t = fast_reciprocal(fmaf(0.3275911f * 0.7071067812f, fabsf(x), 1.0f));
  float series = fmaf(0.5307027145f, t, -0.7265760135f);
  series = fmaf(series, t, 0.7107068705f);
  series = fmaf(series, t, -0.142248368f);
  series = fmaf(series, t, 0.127414796f);
  const float tail = __fmul_rn(__fmul_rn(series, t), e);
  return {x < 0.0f ? tail : __fadd_rn(1.0f, -tail), __fmul_rn(INVERSE_ROOT_2_PI, e)};
}
#endif

// The activation of x and its derivative.
struct Activated {
  float value, slope;
};
struct Gelu {
  DEVICE static Activated at(float x) {
    const Normal n = normal(x);
    return {__fmul_rn(x, n.below), fmaf(x, n.density, n.below)};
  }
};
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

// Where a thread's vectors lie; those beyond the matrix begin at the end of its last row.
struct Places {
  int row[VECTORS], at[VECTORS];
  DEVICE Places(u32 vectors, int width) {
    const u32 row_vectors = (u32)(width + LANE - 1) / LANE;
    const u32 begin = blockIdx.x * (THREADS * VECTORS) + threadIdx.x;
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const u32 index = begin + v * THREADS;
      row[v] = (int)(min(index, vectors - 1) / row_vectors);
      at[v] = index < vectors ? (int)(index - (u32)row[v] * row_vectors) * LANE : width;
    }
  }
};

// out = activation, dropped where the grid says so.
template <class Kind>
DEVICE void activate(Element* out, const Element* x, u32 vectors, int width, const Grid& grid) {
  const Places places(vectors, width);
  uint4 kept[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) kept[v] = load_vector(x + (i64)places.row[v] * width, places.at[v], width);
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE];
    widen(kept[v], a);
#pragma unroll
    for (int j = 0; j < LANE; ++j) a[j] = Kind::at(a[j]).value;
    if (grid.threshold != 0) {
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = rounded(a[j]);
      drop(grid, stream_index(grid, places.row[v]) + places.at[v], a);
    }
    store_vector(out + (i64)places.row[v] * width, places.at[v], width, narrow(a));
  }
}

// d_x; where `wants` is set the activation, with the bits of activate(), takes the place of its gradient d. Both are
// dropped where the grid says so.
template <class Kind>
DEVICE void gradient(Element* d_x, Element* d, const Element* x, u32 vectors, int width, int wants, const Grid& grid) {
  const Places places(vectors, width);
  uint4 kept_x[VECTORS], kept_d[VECTORS];
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    kept_x[v] = load_vector(x + (i64)places.row[v] * width, places.at[v], width);
    kept_d[v] = load_vector(d + (i64)places.row[v] * width, places.at[v], width);
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    float a[LANE], g[LANE];
    widen(kept_x[v], a);
    widen(kept_d[v], g);
    float factors[LANE];
    if (grid.threshold != 0) {
      draw_factors(grid, stream_index(grid, places.row[v]) + places.at[v], factors);
#pragma unroll
      for (int j = 0; j < LANE; ++j) g[j] = rounded(__fmul_rn(g[j], factors[j]));
    }
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const Activated activated = Kind::at(a[j]);
      g[j] = __fmul_rn(g[j], activated.slope);
      a[j] = activated.value;
    }
    store_vector(d_x + (i64)places.row[v] * width, places.at[v], width, narrow(g));
    if (!wants) continue;
    if (grid.threshold != 0) {
#pragma unroll
      for (int j = 0; j < LANE; ++j) a[j] = __fmul_rn(rounded(a[j]), factors[j]);
    }
    store_vector(d + (i64)places.row[v] * width, places.at[v], width, narrow(a));
  }
}

#define KERNELS(KIND, NAME)                                                                                       \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      NAME(Element* out, const Element* x, u32 vectors, int width, Grid grid) {                                   \
    activate<KIND>(out, x, vectors, width, grid);                                                                 \
  }                                                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS)                                                           \
      NAME##_gradient(Element* d_x, Element* d, const Element* x, u32 vectors, int width, int wants, Grid grid) { \
    gradient<KIND>(d_x, d, x, vectors, width, wants, grid);                                                       \
  }
KERNELS(Gelu, gelu)
KERNELS(GeluTanh, gelu_tanh)
KERNELS(Relu, relu)
KERNELS(Silu, silu)
