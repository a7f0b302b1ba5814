// variant ELEMENT=0: at most 64 registers
// variant ELEMENT=2: at most 64 registers
// all ELEMENT=0,1,2
//
// Rows of experts beside their products: laying a copy of each token where its expert finds it, adding up what came
// back, and the gated activation times the weights that the router gave rows. A warp takes a row, which begins at a
// multiple of 16 bytes and has whole vectors. Places are those of Note [Routed rows].
#define THREADS 256
#define OWN_ROW ((i64)blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5))

// out[r] = x[slots[r] / per_token]
extern "C" __global__ void __launch_bounds__(THREADS)
    expert_rows(Element* out, const Element* x, const i64* slots, i64 rows, int width, Divisor per_token) {
  const i64 row = OWN_ROW;
  if (row >= rows) return;
  const Element* const from = x + (i64)divided((u32)slots[row], per_token) * width;
  Element* const to = out + row * width;
#pragma unroll 4
  for (int at = (int)(threadIdx.x & 31) * LANE; at < width; at += 32 * LANE) {
    store_vector(to, at, width, load_vector(from, at, width));
  }
}

// out[t] = the sum of rows[places[t][j]] in the order of j; those at -1 are not there.
extern "C" __global__ void __launch_bounds__(THREADS)
    expert_sums(Element* out, const Element* rows, const i64* places, i64 tokens, int width, int per_token) {
  const i64 token = OWN_ROW;
  if (token >= tokens) return;
  const i64* const own = places + token * per_token;
#pragma unroll 1
  for (int at = (int)(threadIdx.x & 31) * LANE; at < width; at += 32 * LANE) {
    float sum[LANE];
#pragma unroll
    for (int i = 0; i < LANE; ++i) sum[i] = 0;
#pragma unroll 2
    for (int j = 0; j < per_token; ++j) {
      const i64 place = own[j];
      if (place < 0) continue;
      float addend[LANE];
      widen(load_vector(rows + place * width, at, width), addend);
#pragma unroll
      for (int i = 0; i < LANE; ++i) sum[i] += addend[i];
    }
    store_vector(out + token * width, at, width, narrow(sum));
  }
}

// silu(gate) * up times the row's weight, one way forward and back.
struct Gated {
  float slope_of_gate, silu, active;
  DEVICE Gated(float gate, float up) {
    const float s = sigmoid(gate);
    silu = __fmul_rn(gate, s);
    active = __fmul_rn(silu, up);
    slope_of_gate = fmaf(silu, 1.0f - s, s);
  }
};

// gates [rows, 2 width]: gates, then ups.
extern "C" __global__ void __launch_bounds__(THREADS)
    expert_activation(Element* out, const Element* gates, const float* weights, i64 rows, int width) {
  const i64 row = OWN_ROW;
  if (row >= rows) return;
  const float weight = weights[row];
  const Element* const from = gates + row * 2 * width;
#pragma unroll 2
  for (int at = (int)(threadIdx.x & 31) * LANE; at < width; at += 32 * LANE) {
    float g[LANE], u[LANE];
    widen(load_vector(from, at, width), g);
    widen(load_vector(from + width, at, width), u);
#pragma unroll
    for (int j = 0; j < LANE; ++j) g[j] = __fmul_rn(Gated(g[j], u[j]).active, weight);
    store_vector(out + row * width, at, width, narrow(g));
  }
}

// d_gates, where it is not null d_weights, and where `again` is not null what expert_activation() made: it may be `gy`.
extern "C" __global__ void __launch_bounds__(THREADS)
    expert_activation_gradient(Element* d_gates, float* d_weights, Element* again, const Element* gy,
                               const Element* gates, const float* weights, i64 rows, int width) {
  const i64 row = OWN_ROW;
  if (row >= rows) return;
  const float weight = weights[row];
  const Element* const from = gates + row * 2 * width;
  Element* const to = d_gates + row * 2 * width;
  float sum = 0;
#pragma unroll 2
  for (int at = (int)(threadIdx.x & 31) * LANE; at < width; at += 32 * LANE) {
    float g[LANE], u[LANE], d[LANE];
    widen(load_vector(from, at, width), g);
    widen(load_vector(from + width, at, width), u);
    widen(load_vector(gy + row * width, at, width), d);
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const Gated gated(g[j], u[j]);
      sum = fmaf(d[j], gated.active, sum);
      const float d_active = d[j] * weight;
      g[j] = d_active * u[j] * gated.slope_of_gate;
      u[j] = d_active * gated.silu;
      d[j] = __fmul_rn(gated.active, weight);
    }
    store_vector(to, at, width, narrow(g));
    store_vector(to + width, at, width, narrow(u));
    if (again != nullptr) store_vector(again + row * width, at, width, narrow(d));
  }
  sum = warp_sum(sum);
  if (d_weights != nullptr && (threadIdx.x & 31) == 0) d_weights[row] = sum;
}
