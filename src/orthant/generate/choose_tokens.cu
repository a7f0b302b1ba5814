// variant ELEMENT=0 ALIGNED=1: at most 64 registers
// variant ELEMENT=2 ALIGNED=0: at most 64 registers
// all ELEMENT=0,1,2 ALIGNED=0,1
//
// Tokens from rows of logits, a block of 16 warps to each. Weights are exp((logit - highest) / temperature) in float64,
// as serve/token_chooser.cpp has them; their sums are added up in another order, which is always the same.
#define WARPS 16
#define THREADS (32 * WARPS)

#define INFINITY __int_as_float(0x7f800000)

// The better of two candidates: the larger one, of equal ones the first. A number that is none is less than all others.
struct Candidate {
  float value;
  int token;
};
DEVICE bool before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.token < b.token);
}

// Every thread of the block has the first of the row's largest numbers; none: a token beyond the vocabulary.
DEVICE Candidate most_probable_of(const Element* row, int vocabulary) {
  __shared__ Candidate shared[WARPS];
  Candidate best = {-INFINITY, vocabulary};
  for (int at = threadIdx.x * LANE; at < vocabulary; at += THREADS * LANE) {
    float x[LANE];
    widen(load_vector(row, at, vocabulary), x);
#pragma unroll
    for (int j = 0; j < LANE; ++j) {
      const Candidate own = {x[j], at + j};
      if (at + j < vocabulary && before(own, best)) best = own;
    }
  }
#pragma unroll
  for (int offset = 16; offset > 0; offset >>= 1) {
    const Candidate other = {__shfl_xor_sync(~0u, best.value, offset), __shfl_xor_sync(~0u, best.token, offset)};
    if (before(other, best)) best = other;
  }
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = best;
  __syncthreads();
  best = shared[0];
  for (int w = 1; w < WARPS; ++w) {
    if (before(shared[w], best)) best = shared[w];
  }
  return best;
}

// chosen[row] = {token, whether its logit is a finite number}.
extern "C" __global__ void __launch_bounds__(THREADS)
    most_probable(i64* chosen, const Element* logits, int vocabulary) {
  const Candidate best = most_probable_of(logits + (i64)blockIdx.x * vocabulary, vocabulary);
  if (threadIdx.x != 0) return;
  chosen[2 * blockIdx.x] = best.token < vocabulary ? best.token : 0;
  chosen[2 * blockIdx.x + 1] = best.token < vocabulary && isfinite(best.value) ? 1 : 0;
}

// What is wanted of a row: of an inverse temperature of 0 the most probable token; with `keep` so many of the most
// probable ones, and with `sums` the sum of all weights; else a token that is drawn, of those whose weight is at least
// min_p.
struct Wanted {
  double inverse_temperature, min_p, uniform;
  i64 keep, sums;
};
struct Chosen {
  i64 token, finite, count;
  double sum;
};

// Of each thread the sum of its own and all lower threads' values.
template <class T>
DEVICE T sum_up_to(T value, T* shared) {
  const int thread = threadIdx.x;
  __syncthreads();
  shared[thread] = value;
  __syncthreads();
#pragma unroll 1
  for (int apart = 1; apart < THREADS; apart <<= 1) {
    const T lower = thread >= apart ? shared[thread - apart] : (T)0;
    __syncthreads();
    shared[thread] += lower;
    __syncthreads();
  }
  return shared[thread];
}

// Larger for larger numbers; 0 for what is none. Both zeros are one number.
DEVICE u32 key_of(float x) {
  if (!(x == x)) return 0;
  const u32 bits = __float_as_uint(x == 0.0f ? 0.0f : x);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

// The tokens of one row that belong to this thread: neighbours.
struct Own {
  const Element* row;
  int begin, end;
};

template <class Act>
DEVICE void each(const Own& own, const Act& act) {
#pragma unroll 1
  for (int token = own.begin; token < own.end; ++token) act(token, widened(own.row[token]));
}

DEVICE double weight_of(float x, double highest, double inverse_temperature) {
  return exp(((double)x - highest) * inverse_temperature);
}

// chosen[row], and tokens[row], values[row] of the `most` places for those that are kept, in no order.
extern "C" __global__ void __launch_bounds__(THREADS)
    choose(Chosen* chosen, int* tokens, float* values, const Element* logits, const Wanted* all_wanted, int vocabulary,
           int most) {
  __shared__ double sums[THREADS];
  __shared__ u64 counts[THREADS];
  __shared__ u32 histogram[256];
  __shared__ u32 found[2];  // the bin that is reached, and how many of it are taken
  const Wanted wanted = all_wanted[blockIdx.x];
  Chosen* const out = chosen + blockIdx.x;
  const Element* const row = logits + (i64)blockIdx.x * vocabulary;
  const Candidate best = most_probable_of(row, vocabulary);
  const bool finite = best.token < vocabulary && isfinite(best.value);
  if (threadIdx.x == 0) {
    out->token = best.token < vocabulary ? best.token : 0;
    out->finite = finite ? 1 : 0;
    out->count = 0;
    out->sum = 0;
  }
  if (!finite || wanted.inverse_temperature == 0) return;
  const int share = (vocabulary + THREADS - 1) / THREADS;
  const int begin = min((int)threadIdx.x * share, vocabulary);
  const Own own = {row, begin, min(begin + share, vocabulary)};
  const double highest = best.value;
  if (wanted.keep == 0 || wanted.sums) {
    const auto counted = [&](float x) {
      const double weight = weight_of(x, highest, wanted.inverse_temperature);
      return weight > 0 && (wanted.sums || weight >= wanted.min_p) ? weight : 0.0;
    };
    double sum = 0;
    each(own, [&](int, float x) { sum += counted(x); });
    const double upper = sum_up_to(sum, sums), all = sums[THREADS - 1];
    const double lower = threadIdx.x == 0 ? 0.0 : sums[threadIdx.x - 1];
    if (threadIdx.x == 0) out->sum = all;
    if (wanted.keep == 0) {
      const double target = wanted.uniform * all;
      // The last one where rounding leaves none.
      const bool here = (lower <= target && target < upper) || (target >= all && upper == all && lower < all);
      if (!here) return;
      double reached = lower;
      int token = -1;
      bool done = false;
      each(own, [&](int at, float x) {
        const double weight = counted(x);
        if (done || weight == 0) return;
        reached += weight;
        token = at;
        done = target < reached;
      });
      if (token >= 0) out->token = token;
      return;
    }
  }
  // The key that the last one of those that are kept has, byte by byte from the highest.
  const u32 keep = (u32)min((int)wanted.keep, vocabulary);
  u32 key = 0, left = keep;
#pragma unroll 1
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    if (threadIdx.x < 256) histogram[threadIdx.x] = 0;
    __syncthreads();
    for (int token = threadIdx.x; token < vocabulary; token += THREADS) {
      const u32 own_key = key_of(widened(row[token]));
      if (shift == 24 || own_key >> (shift + 8) == key >> (shift + 8)) {
        atomicAdd(&histogram[own_key >> shift & 255u], 1u);
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      u32 bin = 255, taken = left;
      while (histogram[bin] < taken) taken -= histogram[bin--];
      found[0] = bin;
      found[1] = taken;
    }
    __syncthreads();
    key |= found[0] << shift;
    left = found[1];
  }
  // Those above it, and of equal ones the first.
  u64 own_counts = 0;
  each(own, [&](int, float x) {
    const u32 own_key = key_of(x);
    own_counts += own_key > key ? (u64)1 << 32 : own_key == key ? 1 : 0;
  });
  const u64 before_own = sum_up_to(own_counts, counts) - own_counts;
  u32 above = (u32)(before_own >> 32), equal = (u32)before_own;
  each(own, [&](int token, float x) {
    const u32 own_key = key_of(x);
    u32 place = keep;
    if (own_key > key) place = above++;
    if (own_key == key) {
      if (equal < left) place = keep - left + equal;
      ++equal;
    }
    if (place >= keep) return;
    tokens[(i64)blockIdx.x * most + place] = token;
    values[(i64)blockIdx.x * most + place] = x;
  });
  if (threadIdx.x == 0) out->count = keep;
}
