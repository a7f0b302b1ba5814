// Where tests of kernels compute: on a CUDA device, or with host tensors on the emulated card.
#pragma once

#include <ATen/ATen.h>

#include <cstdlib>
#include <functional>

#include "cuda/emulated_card/open.h"
#include "orthant/cuda/kernel.h"

namespace orthant::test {

inline void use_emulated_card(bool used) {
  const auto cache = std::filesystem::path(emulated_card::folder()) / "kernels";
  cuda::KernelLibrary::of_process().configure({.cache_folder = cache, .say = {}, .on_host = used});
}

// The device of tensors that kernels take.
inline at::Device card() {
  static const at::Device device = [] {
    if (emulated_card::folder() == nullptr) return at::Device(at::kCUDA);
    emulated_card::open();
    use_emulated_card(true);
    // Memory of new tensors holds NaN.
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
    at::globalContext().setDeterministicFillUninitializedMemory(true);
    return at::Device(at::kCPU);
  }();
  return device;
}

inline at::TensorOptions on_card(at::ScalarType dtype) {
  return at::TensorOptions().device(card()).dtype(dtype);
}

// Random shapes of each test. ORTHANT_SHAPES says how many; else the emulated card, which takes its time, has `few`.
inline int num_shapes(int many, int few) {
  const char* const wanted = std::getenv("ORTHANT_SHAPES");
  if (wanted != nullptr) return std::atoi(wanted);
  return emulated_card::folder() == nullptr ? many : few;
}

// What the CPU itself computes: with an emulated card, host tensors are the kernels' otherwise.
inline void on_cpu(const std::function<void()>& act) {
  const bool emulated = card().is_cpu();
  if (emulated) use_emulated_card(false);
  act();
  if (emulated) use_emulated_card(true);
}

}  // namespace orthant::test
