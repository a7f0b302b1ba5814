// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// SwiGLU of x [rows, 2 width], gates then ups: silu(gate) * up. A thread takes LANE columns of a row.
extern "C" __global__ void __launch_bounds__(256) swiglu(Element* out, const Element* x, i64 vectors, int width) {
  const int row_vectors = (width + LANE - 1) / LANE;
  const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= vectors) return;
  const i64 row = index / row_vectors;
  const int at = (int)(index - row * row_vectors) * LANE;
  const Element* from = x + row * 2 * width;
  const uint4 gates = load_vector(from, at, width), ups = load_vector(from + width, at, width);
  float g[LANE], u[LANE];
  widen(gates, g);
  widen(ups, u);
#pragma unroll
  for (int j = 0; j < LANE; ++j) g[j] = g[j] * sigmoid(g[j]) * u[j];
  store_vector(out + row * width, at, width, narrow(g));
}

// d_x beside x; where `wants` is set the activation, with the bits of swiglu(), takes the place of its gradient d.
extern "C" __global__ void __launch_bounds__(256)
    swiglu_gradient(Element* d_x, Element* d, const Element* x, i64 vectors, int width, int wants) {
  const int row_vectors = (width + LANE - 1) / LANE;
  const i64 index = (i64)blockIdx.x * blockDim.x + threadIdx.x;
  if (index >= vectors) return;
  const i64 row = index / row_vectors;
  const int at = (int)(index - row * row_vectors) * LANE;
  const Element* from = x + row * 2 * width;
  const uint4 gates = load_vector(from, at, width), ups = load_vector(from + width, at, width);
  const uint4 gradients = load_vector(d + row * width, at, width);
  float g[LANE], u[LANE], dy[LANE], activation[LANE];
  widen(gates, g);
  widen(ups, u);
  widen(gradients, dy);
#pragma unroll
  for (int j = 0; j < LANE; ++j) {
    const float s = sigmoid(g[j]);
    const float silu = g[j] * s;
    activation[j] = silu * u[j];
    const float d_silu = s + silu * (1.0f - s);
    g[j] = dy[j] * u[j] * d_silu;
    u[j] = dy[j] * silu;
  }
  store_vector(d_x + row * 2 * width, at, width, narrow(g));
  store_vector(d_x + row * 2 * width + width, at, width, narrow(u));
  if (wants) store_vector(d + row * width, at, width, narrow(activation));
}
