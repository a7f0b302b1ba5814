#include "orthant/ops/module/gradient_catch.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <type_traits>
#include <utility>

namespace orthant {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

class CatchNode : public Node {
 public:
  explicit CatchNode(std::shared_ptr<at::Tensor> caught) : caught_(std::move(caught)) {}

  variable_list apply(variable_list&& gradients) override {
    *caught_ = std::move(gradients[0]);
    return {};
  }

 private:
  std::shared_ptr<at::Tensor> caught_;
};

// libtorch 2.11 holds nodes by std::shared_ptr, 2.13 by c10::intrusive_ptr.
template <typename Pointer, typename Concrete, typename... Arguments>
Pointer make_node(Arguments&&... arguments) {
  if constexpr (std::is_same_v<Pointer, std::shared_ptr<Node>>) {
    return std::make_shared<Concrete>(std::forward<Arguments>(arguments)...);
  } else {
    return c10::make_intrusive<Concrete>(std::forward<Arguments>(arguments)...);
  }
}

}  // namespace

GradientCatch::GradientCatch(const at::Tensor& value)
    : tensor_(value.detach()), caught_(std::make_shared<at::Tensor>()) {
  using Pointer = std::remove_cvref_t<decltype(torch::autograd::Edge::function)>;
  torch::autograd::create_gradient_edge(tensor_, make_node<Pointer, CatchNode>(caught_));
}

at::Tensor GradientCatch::take() {
  return std::exchange(*caught_, at::Tensor());
}

}  // namespace orthant
