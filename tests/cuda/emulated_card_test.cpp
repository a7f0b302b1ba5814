// The emulated card itself: it computes, and it says what real cards hang on or keep quiet about. Kernels of this test
// are in a second source, behind prelude.cu as all are.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "cuda/emulated_card/open.h"
#include "orthant/base/error.h"
#include "orthant/cuda/kernel.h"

namespace orthant::cuda::emulated_card_test {

const Source kSource{"test/emulated.cu",
                     R"(
extern "C" __global__ void __launch_bounds__(64) sum_block(float* out, const float* x) {
  __shared__ float scratch[2];
  const float sum = warp_sum(x[blockIdx.x * 64 + threadIdx.x]);
  if ((threadIdx.x & 31) == 0) scratch[threadIdx.x >> 5] = sum;
#if SYNCS
  __syncthreads();
#endif
  out[blockIdx.x * 64 + threadIdx.x] = scratch[0] + scratch[1];
}
extern "C" __global__ void __launch_bounds__(32) copy(float4* out, const float4* x) {
  extern __shared__ __align__(16) float4 shared[];
  const u32 to = (u32)__cvta_generic_to_shared(shared + threadIdx.x);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(x + threadIdx.x), "r"(8));
  asm volatile("cp.async.commit_group;");
#if SYNCS
  asm volatile("cp.async.wait_group %0;" ::"n"(0));
#endif
  out[threadIdx.x] = shared[threadIdx.x];
}
extern "C" __global__ void part_ways(float* out) {
  if (threadIdx.x < 32) {
    out[threadIdx.x] = warp_sum(1.0f);
  } else if (threadIdx.x < 40) {
    __syncthreads();
  } else {
    out[threadIdx.x] = warp_sum(1.0f);
  }
}
extern "C" __global__ void two_meetings(float* out) {
  out[threadIdx.x] = threadIdx.x < 16 ? warp_sum(1.0f) : (float)__ballot_sync(~0u, 1);
}
extern "C" __global__ void end_early(float* out) {
  if (threadIdx.x % 2 == 1) return;
  __syncthreads();
  out[threadIdx.x] = warp_sum(1.0f);
}
extern "C" __global__ void store_beyond(float* out) {
  extern __shared__ __align__(16) float shared[];
  asm volatile("st.shared.b32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(shared + 8)), "r"(1u));
}
extern "C" __global__ void any_of(int* out) {
  if (threadIdx.x >= 48) return;
  out[threadIdx.x] = __syncthreads_or(threadIdx.x == 40) + 2 * __syncthreads_or(0);
}
// out[n, m]: products of 16 x 16 and 16 x 8 matrices in shared memory, one over the rows of the second, stored as 8 x 16.
extern "C" __global__ void multiply(float* out, const u16* a, const u16* b) {
  extern __shared__ __align__(16) u16 shared[];
  for (int i = threadIdx.x; i < 256; i += 32) shared[i] = a[i];
  for (int i = threadIdx.x; i < 128; i += 32) shared[256 + i] = b[i];
  __syncthreads();
  const int lane = threadIdx.x;
  const u32 from = (u32)__cvta_generic_to_shared(shared);
  u32 left[4], right[4];
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(left[0]), "=r"(left[1]), "=r"(left[2]), "=r"(left[3])
               : "r"(from + ((lane & 15) * 16 + (lane >> 4) * 8) * 2));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
               : "r"(from + (256 + (lane & 7) * 16 + ((lane >> 3) & 1) * 8) * 2));
  float d[4] = {1, 1, 1, 1};
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  for (int j = 0; j < 4; ++j) out[(lane / 4 + (j >> 1) * 8) * 8 + lane % 4 * 2 + (j & 1)] = d[j];
}
// out [64, 16]: a product of four warps, over 16 of 64 columns of rows of 128 bytes, whose chunks are swizzled.
extern "C" __global__ void multiply_together(float* out, const u16* a, const u16* b) {
  extern __shared__ __align__(1024) u16 shared[];
  for (int i = threadIdx.x; i < 80 * 16; i += 128) {
    const int row = i / 16, column = i % 16;
    shared[row * 64 + ((column / 8) ^ (row % 8)) * 8 + column % 8] = row < 64 ? a[i] : b[i - 1024];
  }
  asm volatile("fence.proxy.async.shared::cta;");
  __syncthreads();
  const u32 from = (u32)__cvta_generic_to_shared(shared);
  const u64 left = from >> 4 | 64ull << 16 | 64ull << 32 | 1ull << 62, right = left + (64 * 128 >> 4);
  const float none = __uint_as_float(0x7fc00000);
  float d[8] = {none, none, none, none, none, none, none, none};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16"
               " {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, %10, 1, 1, %11, %12;"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7])
               : "l"(left), "l"(right), "n"(0), "n"(0), "n"(0));
  asm volatile("wgmma.commit_group.sync.aligned;");
#if SYNCS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(0));
#endif
  const int row = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  for (int i = 0; i < 8; ++i) out[(row + (i % 4 / 2) * 8) * 16 + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2] = d[i];
}
)",
                     {"SYNCS"}};
const Source kUnknown{"test/unknown.cu",
                      R"(
extern "C" __global__ void unknown(u32* out) { asm("bfind.u32 %0, %1;" : "=r"(*out) : "r"(7)); }
)",
                      {}};

KernelLibrary& library() {
  static KernelLibrary made;
  static const bool opened = (emulated_card::open(), true);
  static_cast<void>(opened);
  return made;
}

const Kernel& kernel(const char* name, int syncs = 1) {
  return library().get(kSource, name, {syncs});
}

template <class... Arguments>
std::string error_of(const char* name, const LaunchShape& shape, Arguments... arguments) {
  try {
    kernel(name)(shape, arguments...);
  } catch (const InternalError& error) {
    return error.message();
  }
  return "no error";
}

std::vector<float> sums(int syncs) {
  std::vector<float> x(128), out(128);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 64 + 64 * (i / 64));
  kernel("sum_block", syncs)({.blocks = 2, .threads = 64}, out.data(), static_cast<const float*>(x.data()));
  return out;
}

TEST(EmulatedCard, RunsBlocksWithSharedMemoryAndWarps) {
  for (int launch = 0; launch < 2; ++launch) {
    const auto out = sums(1);
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], i < 64 ? 2016 : 2016 + 64 * 64) << i;
  }
}

TEST(EmulatedCard, AMissingBarrierShowsAsNan) {
  for (int launch = 0; launch < 2; ++launch) {
    const auto out = sums(0);
    EXPECT_TRUE(std::isnan(out.front()) || std::isnan(out.back()));
  }
}

TEST(EmulatedCard, CopiesArriveWhenTheyAreAwaitedAndNotBefore) {
  struct alignas(16) Vector {
    float x[4];
  };
  std::vector<Vector> x(32), out(32);
  for (std::size_t i = 0; i < 32; ++i) x[i] = {{static_cast<float>(i), 1, 2, 3}};
  const LaunchShape shape{.threads = 32, .shared_bytes = 512};
  for (int launch = 0; launch < 2; ++launch) {
    kernel("copy", 1)(shape, out.data(), static_cast<const Vector*>(x.data()));
    for (std::size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(out[i].x[0], static_cast<float>(i));
      EXPECT_EQ(out[i].x[2], 0) << "only 8 bytes are taken";
    }
  }
  int early = 0;
  for (int launch = 0; launch < 2; ++launch) {
    kernel("copy", 0)(shape, out.data(), static_cast<const Vector*>(x.data()));
    early += std::isnan(out[5].x[0]) ? 1 : 0;
  }
  EXPECT_EQ(early, 1) << "of two launches, in one copies arrive at once";
}

std::uint16_t narrow(int value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

TEST(EmulatedCard, MultipliesFragments) {
  std::vector<std::uint16_t> a(256), b(128);
  for (int i = 0; i < 256; ++i) a[static_cast<std::size_t>(i)] = narrow(i % 7 - 3);
  for (int i = 0; i < 128; ++i) b[static_cast<std::size_t>(i)] = narrow(i % 5 - 1);
  std::vector<float> out(128);
  kernel("multiply")({.threads = 32, .shared_bytes = 768}, out.data(), static_cast<const std::uint16_t*>(a.data()),
                     static_cast<const std::uint16_t*>(b.data()));
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      int sum = 1;
      for (int k = 0; k < 16; ++k) sum += ((m * 16 + k) % 7 - 3) * ((n * 16 + k) % 5 - 1);
      EXPECT_EQ(out[static_cast<std::size_t>(m * 8 + n)], static_cast<float>(sum)) << m << ", " << n;
    }
  }
}

TEST(EmulatedCard, MultipliesByWarpGroupsWhenThatIsAwaited) {
  std::vector<std::uint16_t> a(64 * 16), b(16 * 16);
  for (int i = 0; i < 64 * 16; ++i) a[static_cast<std::size_t>(i)] = narrow(i % 11 - 5);
  for (int i = 0; i < 16 * 16; ++i) b[static_cast<std::size_t>(i)] = narrow(i % 7 - 2);
  const auto products = [&](int syncs) {
    std::vector<float> out(64 * 16);
    kernel("multiply_together", syncs)({.threads = 128, .shared_bytes = 80 * 128}, out.data(),
                                       static_cast<const std::uint16_t*>(a.data()),
                                       static_cast<const std::uint16_t*>(b.data()));
    return out;
  };
  int early = 0;
  for (int launch = 0; launch < 2; ++launch) {
    const auto out = products(1);
    for (int m = 0; m < 64; ++m) {
      for (int n = 0; n < 16; ++n) {
        int sum = 0;
        for (int k = 0; k < 16; ++k) sum += ((m * 16 + k) % 11 - 5) * ((n * 16 + k) % 7 - 2);
        EXPECT_EQ(out[static_cast<std::size_t>(m * 16 + n)], static_cast<float>(sum)) << m << ", " << n;
      }
    }
    early += std::isnan(products(0)[7]) ? 1 : 0;
  }
  EXPECT_EQ(early, 1) << "of two launches, in one products are done at once";
}

TEST(EmulatedCard, ThreadsThatHaveEndedAreNotWaitedFor) {
  std::vector<int> out(64, 9);
  kernel("any_of")({.threads = 64}, out.data());
  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[47], 1);
  EXPECT_EQ(out[48], 9);
}

TEST(EmulatedCard, SaysWhatARealOneHangsOn) {
  std::vector<float> out(64);
  EXPECT_EQ(
      error_of("part_ways", {.blocks = 3, .threads = 64}, out.data()),
      "starting a kernel: the CUDA driver says: part_ways, block (0, 0, 0), threads wait for others for ever: 8 of "
      "32 live threads of the block in __syncthreads, 24 of 32 live threads of warp 1 in __shfl_xor_sync (719)");
  EXPECT_NE(error_of("two_meetings", {.threads = 32}, out.data()).find("are in __"), std::string::npos);
  EXPECT_NE(error_of("end_early", {.threads = 32}, out.data()).find("asks a lane that has ended"), std::string::npos);
  EXPECT_NE(error_of("sum_block", {.threads = 96}, out.data(), static_cast<const float*>(out.data()))
                .find("1 x 1 x 1 blocks of 96 threads (at most 64)"),
            std::string::npos);
  EXPECT_NE(error_of("store_beyond", {.threads = 1, .shared_bytes = 32}, out.data())
                .find("thread 0: st.shared.b32 of 4 bytes at 32 of 32 bytes of shared memory"),
            std::string::npos);
  // The next launch is not harmed.
  EXPECT_EQ(sums(1)[0], 2016);
}

TEST(EmulatedCard, HostMemoryIsTheKernelsOnlyWhereATestSaysSo) {
  KernelLibrary made;
  EXPECT_FALSE(made.on_host());
  made.configure({});
  EXPECT_FALSE(made.on_host());
  made.configure({.cache_folder = {}, .say = {}, .on_host = true});
  EXPECT_TRUE(made.on_host());
}

TEST(EmulatedCard, NamesAnInstructionThatItDoesNotHave) {
  try {
    library().get(kUnknown, "unknown", {});
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(error.message().find("the emulated card has no instruction \"bfind.u32 %0, %1\": "
                                   "tests/cuda/emulated_card/device.h needs a function ptx_bfind_u32"),
              std::string::npos)
        << error.message();
  }
}

}  // namespace orthant::cuda::emulated_card_test
