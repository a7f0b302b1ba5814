// Speed of the shared-memory reductions on one core, next to memcpy and to a loop left to the compiler. The rate counts
// the bytes read and written, as the program sees them.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orthant/shm/reduce.h"

namespace {

using namespace orthant::shm;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

// Buffers of `num_bytes` each, aligned as tensors are.
struct Buffers {
  Buffers(int num_inputs, std::size_t num_bytes) {
    for (int i = 0; i <= num_inputs; ++i) {
      memory.emplace_back(std::aligned_alloc(64, num_bytes));
      std::memset(memory.back().get(), i, num_bytes);
      pointers.push_back(memory.back().get());
    }
    output = pointers.back();
    inputs.assign(pointers.begin(), pointers.end() - 1);
  }
  std::vector<std::unique_ptr<void, Free>> memory;
  std::vector<void*> pointers;
  std::vector<const void*> inputs;
  void* output = nullptr;
};

void count_bytes(benchmark::State& state, std::size_t bytes_per_iteration) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * bytes_per_iteration));
}

void bench_reduce(benchmark::State& state, Isa isa, Dtype dtype, Reduce op) {
  const int num_inputs = static_cast<int>(state.range(0));
  const auto num_bytes = static_cast<std::size_t>(state.range(1)) << 10;
  Buffers buffers(num_inputs, num_bytes);
  for (auto _ : state) {
    reduce(isa, dtype, op, buffers.output, buffers.inputs.data(), num_inputs, num_bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  count_bytes(state, (num_inputs + 1) * num_bytes);
}

void bench_reduce_to_many(benchmark::State& state, Dtype dtype) {
  const int num_inputs = static_cast<int>(state.range(0));
  const auto num_bytes = static_cast<std::size_t>(state.range(1)) << 10;
  Buffers buffers(num_inputs, num_bytes);
  for (auto _ : state) {
    reduce_to_many(dtype, Reduce::max, buffers.pointers.data(), num_inputs, buffers.inputs.data(), num_inputs,
                   num_bytes / size_of(dtype));
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * num_inputs * num_bytes);
}

void bench_memcpy(benchmark::State& state) {
  const auto num_bytes = static_cast<std::size_t>(state.range(0)) << 10;
  Buffers buffers(1, num_bytes);
  for (auto _ : state) {
    std::memcpy(buffers.output, buffers.inputs[0], num_bytes);
    benchmark::ClobberMemory();
  }
  count_bytes(state, 2 * num_bytes);
}

// Compile this file with -O3 for a fair comparison.
[[gnu::noinline, gnu::target("avx2")]] void loop_sum(float* output, const float* left, const float* right,
                                                     std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) output[i] = left[i] + right[i];
}

void bench_loop(benchmark::State& state) {
  const auto num_bytes = static_cast<std::size_t>(state.range(0)) << 10;
  Buffers buffers(2, num_bytes);
  for (auto _ : state) {
    loop_sum(static_cast<float*>(buffers.output), static_cast<const float*>(buffers.inputs[0]),
             static_cast<const float*>(buffers.inputs[1]), num_bytes / sizeof(float));
    benchmark::ClobberMemory();
  }
  count_bytes(state, 3 * num_bytes);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::int64_t> kib = {16, 1024, 16384};
  const std::vector<std::pair<Isa, std::string>> isas = {
      {Isa::plain, "plain"}, {Isa::avx2, "avx2"}, {Isa::avx512, "avx512"}};
  benchmark::RegisterBenchmark("memcpy", bench_memcpy)->ArgsProduct({kib});
  benchmark::RegisterBenchmark("loop_f32_sum", bench_loop)->ArgsProduct({kib});
  for (const auto& [isa, isa_name] : isas) {
    if (!supported(isa)) continue;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      const std::string name = isa_name + "_" + name_of(dtype);
      benchmark::RegisterBenchmark((name + "_sum").c_str(), bench_reduce, isa, dtype, Reduce::sum)
          ->ArgsProduct({{2, 4, 8, 16}, kib});
      benchmark::RegisterBenchmark((name + "_max").c_str(), bench_reduce, isa, dtype, Reduce::max)
          ->ArgsProduct({{2}, kib});
    }
  }
  benchmark::RegisterBenchmark("to_many_f32_max", bench_reduce_to_many, Dtype::f32)->ArgsProduct({{2, 4, 8}, kib});
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
