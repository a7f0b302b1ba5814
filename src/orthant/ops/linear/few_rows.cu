// variant ELEMENT=0 EIGHTS=1 TILES=2 NORMS=1 GATED=1: at most 128 registers
// variant ELEMENT=0 EIGHTS=4 TILES=2 NORMS=1 GATED=0: at most 128 registers
// variant ELEMENT=1 EIGHTS=2 TILES=1 NORMS=0 GATED=0: at most 128 registers
// all ELEMENT=0,1 EIGHTS=1,2,3,4 TILES=1,2 NORMS=0,1 GATED=0,1
//
// Products of up to 8 EIGHTS rows with a weight [outputs, depth], which is read once, straight into the registers that
// multiply it. A block takes 16 TILES outputs; its warps share the depth, 32 elements at a time in turn, and add their
// sums up in order. That order depends on the depth alone: a row's result is the same beside any others.
//
// Note [Depth by lanes]: a product of a warp adds over 16 elements of depth, of which a lane holds four of each factor.
// Which four does not matter while both factors agree: a lane takes eight neighbours, 16 bytes, for two products.
//
// NORMS: rows are normalised first, as RMSNorm does: their elements are weighed by the norm's weight, the sum of their
// squares is added up beside the products, and divides the results. GATED: of outputs [2, width] the first half are
// gates: silu(gate) * up is written, of both as a store and a load in between would round them. A tile is theirs each.
#if GATED
#undef TILES
#define TILES 2
#endif
#define WARPS 8
#define STEP 32  // of depth
#if EIGHTS < 3 && TILES == 1
#define AT_ONCE 4  // steps
#elif EIGHTS < 3
#define AT_ONCE 2
#else
#define AT_ONCE 1
#endif
#define OUTPUTS (16 * TILES)
#define ROWS (8 * EIGHTS)

struct FewRows {
  Element* y;
  const Element* x;
  const Element* weight;
  const Element* bias;         // [outputs], or null
  const Element* added;        // as y, or null
  const Element* norm_weight;  // [depth]
  i64 x_stride, weight_stride, added_stride, y_stride;
  int rows, depth, outputs;  // GATED: outputs are those written
  float eps;
};

struct Loaded {
  uint4 weight[TILES][2];
  uint4 x[EIGHTS];
#if NORMS
  uint4 norm;
#endif
};

DEVICE u32 word(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, 2) few_rows(FewRows product) {
  __shared__ float partial[WARPS][ROWS][OUTPUTS + 1];
#if NORMS
  __shared__ float squares[WARPS][ROWS];
#endif
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int row = lane >> 2, at = (lane & 3) * 8;
  const int width = GATED ? OUTPUTS / 2 : OUTPUTS;  // of the outputs that the block writes
  const int first = blockIdx.x * width;
  const Element* weights[TILES][2];
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // Those beyond the last are computed in its place and not written.
      const int output = min(first + (GATED ? 0 : t * 16) + half * 8 + row, product.outputs - 1);
      weights[t][half] = product.weight + (i64)(output + (GATED ? t * product.outputs : 0)) * product.weight_stride;
    }
  }
  const Element* rows[EIGHTS];
#pragma unroll
  for (int e = 0; e < EIGHTS; ++e) rows[e] = product.x + (i64)min(e * 8 + row, product.rows - 1) * product.x_stride;
  const int steps = product.depth / STEP;
  const auto load_weights = [&](Loaded& to, int step) {
    const int from = step * STEP + at;
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        to.weight[t][half] =
            step < steps ? __ldcs(reinterpret_cast<const uint4*>(weights[t][half] + from)) : make_uint4(0, 0, 0, 0);
      }
    }
  };
  const auto load_rows = [&](Loaded& to, int step) {
    const int from = step * STEP + at;
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
      to.x[e] = step < steps ? *reinterpret_cast<const uint4*>(rows[e] + from) : make_uint4(0, 0, 0, 0);
    }
#if NORMS
    to.norm = step < steps ? *reinterpret_cast<const uint4*>(product.norm_weight + from) : make_uint4(0, 0, 0, 0);
#endif
  };
  float sums[TILES][EIGHTS][4];
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) sums[t][e][0] = sums[t][e][1] = sums[t][e][2] = sums[t][e][3] = 0;
  }
#if NORMS
  float square[EIGHTS];
#pragma unroll
  for (int e = 0; e < EIGHTS; ++e) square[e] = 0;
#endif
  // Weights of the next steps are on their way while those of these ones are multiplied.
  Loaded now[AT_ONCE];
#pragma unroll
  for (int i = 0; i < AT_ONCE; ++i) load_weights(now[i], warp + i * WARPS);
  await_previous();  // no kernel of a step writes weights
  let_next_begin();
#pragma unroll 1
  for (int step = warp; step < steps; step += AT_ONCE * WARPS) {
    Loaded next[AT_ONCE];
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) load_rows(now[i], step + i * WARPS);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) load_weights(next[i], step + (AT_ONCE + i) * WARPS);
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
#if NORMS
      float n[LANE];
      widen(now[i].norm, n);
#pragma unroll
      for (int e = 0; e < EIGHTS; ++e) {
        float a[LANE];
        widen(now[i].x[e], a);
#pragma unroll
        for (int j = 0; j < LANE; ++j) {
          square[e] += a[j] * a[j];
          a[j] *= n[j];
        }
        now[i].x[e] = narrow(a);
      }
#endif
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
          const uint4 &low = now[i].weight[t][0], &high = now[i].weight[t][1];
          const u32 a[4] = {word(low, 2 * half), word(high, 2 * half), word(low, 2 * half + 1),
                            word(high, 2 * half + 1)};
#pragma unroll
          for (int e = 0; e < EIGHTS; ++e) {
            multiply_add(sums[t][e], a, word(now[i].x[e], 2 * half), word(now[i].x[e], 2 * half + 1));
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) now[i] = next[i];
  }
#pragma unroll
  for (int t = 0; t < TILES; ++t) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        partial[warp][e * 8 + (lane & 3) * 2 + (j & 1)][t * 16 + (j >> 1) * 8 + row] = sums[t][e][j];
      }
    }
  }
#if NORMS
#pragma unroll
  for (int e = 0; e < EIGHTS; ++e) {
    square[e] += __shfl_xor_sync(~0u, square[e], 1);
    square[e] += __shfl_xor_sync(~0u, square[e], 2);
    if ((lane & 3) == 0) squares[warp][e * 8 + row] = square[e];
  }
#endif
  __syncthreads();
  const auto result = [&](int r, int output) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) sum += partial[w][r][output];
#if NORMS
    float all = 0;
#pragma unroll
    for (int w = 0; w < WARPS; ++w) all += squares[w][r];
    sum *= rsqrtf(all / (float)product.depth + product.eps);
#endif
    return sum;
  };
  for (int i = threadIdx.x; i < ROWS * width; i += 32 * WARPS) {
    const int r = i / width, output = i % width;
    if (r >= product.rows || first + output >= product.outputs) continue;
    const i64 column = first + output;
    float sum = result(r, output);
    if (product.bias != nullptr) sum += widened(product.bias[column]);
#if GATED
    float up = result(r, 16 + output);
    if (product.bias != nullptr) up += widened(product.bias[product.outputs + column]);
    const float gate = rounded(sum);
    sum = gate * sigmoid(gate) * rounded(up);
#endif
    if (product.added != nullptr) sum += widened(product.added[r * product.added_stride + column]);
    product.y[r * product.y_stride + column] = narrowed(sum);
  }
}
