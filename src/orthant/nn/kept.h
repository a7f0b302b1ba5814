// What a backward needs besides tensors, carried from forward through autograd's context: parameters, the pass, sizes.
// Raw pointers are fine in it, because parameters and passes outlive the graph. Local.
#pragma once

#include <ATen/core/custom_class.h>
#include <torch/csrc/autograd/custom_function.h>

#include <optional>
#include <utility>

namespace orthant::nn {

template <class State>
struct Kept : torch::CustomClassHolder {
  explicit Kept(State kept) : state(std::move(kept)) {}
  State state;
};

template <class State>
void keep(torch::autograd::AutogradContext* ctx, State state) {
  ctx->saved_data["kept"] = c10::IValue::make_capsule(c10::make_intrusive<Kept<State>>(std::move(state)));
}

// Lives as long as the graph's node: deferred work copies what it needs.
template <class State>
State& kept(torch::autograd::AutogradContext* ctx) {
  return static_cast<Kept<State>*>(ctx->saved_data["kept"].toCapsule().get())->state;
}

// An undefined tensor as Function::apply() takes it. Its gradient must be undefined, too.
inline std::optional<at::Tensor> if_defined(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional<at::Tensor>(tensor) : std::nullopt;
}

}  // namespace orthant::nn
