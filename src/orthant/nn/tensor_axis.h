// The ranks that share every layer, as the functions of this layer see them: what they exchange, not how. A function
// with a null axis, or on a parameter that is whole, is Local. Implemented over a group of ranks in parallel/tensor.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "orthant/base/ranges.h"
#include "orthant/base/subject.h"
#include "orthant/graph/spec.h"
#include "orthant/nn/exchange.h"

namespace orthant::nn {

class TensorAxis {
 public:
  TensorAxis(const TensorSharing& sharing, int coordinate) : sharing_(sharing), coordinate_(coordinate) {}
  virtual ~TensorAxis() = default;

  int degree() const { return sharing_.degree; }
  int coordinate() const { return coordinate_; }
  bool sequence_parallel() const { return sharing_.sequence_parallel; }
  bool regather() const { return sharing_.regather; }
  Range part(std::int64_t size) const { return balanced_range(size, sharing_.degree, coordinate_); }

  // All four are Collective over the axis, and take contiguous tensors. `subject`: whose tensors are summed. These two
  // work in place.
  virtual std::unique_ptr<Exchange> sum(const at::Tensor& tensor, Subject subject) = 0;
  virtual std::unique_ptr<Exchange> maximum(const at::Tensor& tensor) = 0;
  // output = the ranks' inputs one after the other along dim 0, which the balanced rule cuts.
  virtual std::unique_ptr<Exchange> gather(const at::Tensor& output, const at::Tensor& input) = 0;
  // output = this rank's part along dim 0 of the sum of inputs. It may lie in the input.
  virtual std::unique_ptr<Exchange> scatter(const at::Tensor& output, const at::Tensor& input, Subject subject) = 0;

 private:
  TensorSharing sharing_;
  int coordinate_;
};

}  // namespace orthant::nn
