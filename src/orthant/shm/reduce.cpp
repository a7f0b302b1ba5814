#include "orthant/shm/reduce.h"

#include <algorithm>
#include <cstring>

#include "orthant/shm/reduce_kernels.h"

namespace orthant::shm {

namespace {

// Bytes of each buffer that reduce_to_many handles at a time: what it wrote is still in the first-level cache when it
// is copied to the next output.
constexpr std::size_t kBlockBytes = 4096;

ReduceKernel find_kernel(Isa isa, Dtype dtype, Reduce op) {
  switch (isa) {
    case Isa::avx2:
      return avx2::kernel(dtype, op);
    case Isa::avx512:
      return avx512::kernel(dtype, op);
    case Isa::plain:
      break;
  }
  return plain::kernel(dtype, op);
}

// 64-byte vectors pay only where there is arithmetic: bench/reduce_bench shows bf16 up to 30 % faster with them, and
// everything else as fast or, beyond the caches, slower than with 32-byte vectors (Zen 4).
Isa fastest_isa(Dtype dtype) {
  return dtype != Dtype::bf16 && best_isa() == Isa::avx512 ? Isa::avx2 : best_isa();
}

void copy(void* output, const void* input, std::size_t num_bytes) {
  if (output != input && num_bytes != 0) std::memcpy(output, input, num_bytes);
}

}  // namespace

bool supported(Isa isa) {
  switch (isa) {
    case Isa::plain:
      return true;
    case Isa::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
    case Isa::avx512:
      // What -mavx512f brings along (avx2, fma, f16c) is in every CPU that has these four.
      return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  }
  return false;
}

Isa best_isa() {
  static const Isa best = supported(Isa::avx512) ? Isa::avx512 : supported(Isa::avx2) ? Isa::avx2 : Isa::plain;
  return best;
}

void reduce(Isa isa, Dtype dtype, Reduce op, void* output, const void* const* inputs, int num_inputs,
            std::size_t count) {
  if (num_inputs == 1) {
    copy(output, inputs[0], count * size_of(dtype));
    return;
  }
  const auto* buffers = reinterpret_cast<const char* const*>(inputs);
  find_kernel(isa, dtype, op)(static_cast<char*>(output), buffers, num_inputs, 0, count);
}

void reduce(Dtype dtype, Reduce op, void* output, const void* const* inputs, int num_inputs, std::size_t count) {
  reduce(fastest_isa(dtype), dtype, op, output, inputs, num_inputs, count);
}

void reduce_to_many(Dtype dtype, Reduce op, void* const* outputs, int num_outputs, const void* const* inputs,
                    int num_inputs, std::size_t count) {
  const std::size_t element_bytes = size_of(dtype);
  if (num_inputs == 1) {
    for (int i = 0; i < num_outputs; ++i) copy(outputs[i], inputs[0], count * element_bytes);
    return;
  }
  const ReduceKernel kernel = find_kernel(fastest_isa(dtype), dtype, op);
  const auto* buffers = reinterpret_cast<const char* const*>(inputs);
  auto* first = static_cast<char*>(outputs[0]);
  const std::size_t block = kBlockBytes / element_bytes;
  for (std::size_t begin = 0; begin < count; begin += block) {
    const std::size_t size = std::min(block, count - begin);
    // After this the inputs of the block have been read, so that all outputs may be written.
    kernel(first, buffers, num_inputs, begin, size);
    const std::size_t offset = begin * element_bytes;
    for (int i = 1; i < num_outputs; ++i) {
      copy(static_cast<char*>(outputs[i]) + offset, first + offset, size * element_bytes);
    }
  }
}

}  // namespace orthant::shm
