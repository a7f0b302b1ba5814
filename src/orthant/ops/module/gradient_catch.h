// The border of a unit's autograd graph on the input side: a value made from a detached tensor whose gradient, complete
// and uncopied, is handed over when the unit's backward has run. (An ordinary leaf would clone most gradients.)
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

namespace orthant {

class GradientCatch {
 public:
  // `tensor()` shares storage with `value`, needs a gradient and has no history beyond this object.
  explicit GradientCatch(const at::Tensor& value);

  const at::Tensor& tensor() const { return tensor_; }

  // What arrived; undefined when no gradient reached the input. Gives it away.
  at::Tensor take();

  // Drops the tensor: only what backward needs stays alive.
  void release() { tensor_.reset(); }

 private:
  at::Tensor tensor_;
  std::shared_ptr<at::Tensor> caught_;
};

}  // namespace orthant
