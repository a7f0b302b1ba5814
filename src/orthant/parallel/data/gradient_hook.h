// How gradients travel: a pair of functions around every reduction of data parallelism. The plain way is no hook.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>

namespace orthant {

// Sums over ranks are made of what `encode` returns, element by element: a one-dimensional tensor of as many elements
// as it is given. `decode` writes a reduced tensor, or a part of one, into gradients of as many elements. Both are
// called on every rank, in one order. Local.
struct GradientHook {
  std::function<at::Tensor(const at::Tensor& gradients)> encode;
  std::function<void(const at::Tensor& travelled, const at::Tensor& gradients)> decode;

  explicit operator bool() const { return static_cast<bool>(encode); }
};

// What travels. ConfigError when the hook has no decode, or encode returns another number of elements.
at::Tensor encoded(const GradientHook& hook, const at::Tensor& gradients);

// Gradients travel in bfloat16: half the bytes of float32, sums rounded to 8 bits.
GradientHook bf16_hook();

// "none" or "bf16". ConfigError with the nearest name.
GradientHook named_hook(std::string_view name);

}  // namespace orthant
