// The ranks that have a part of every row each, as operations see them: what they exchange, not how. A pass with a null
// axis has whole rows. Implemented over a group of ranks in parallel/context.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "orthant/base/subject.h"
#include "orthant/graph/context.h"
#include "orthant/nn/tensor_axis.h"

namespace orthant::nn {

class ContextAxis {
 public:
  ContextAxis(const ContextSharing& sharing, int coordinate) : sharing_(sharing), coordinate_(coordinate) {}
  virtual ~ContextAxis() = default;

  const ContextSharing& sharing() const { return sharing_; }
  int degree() const { return sharing_.degree; }
  int coordinate() const { return coordinate_; }
  OwnPositions positions(std::int64_t sequence, int coordinate) const {
    return own_positions(sequence, sharing_, coordinate);
  }
  OwnPositions positions(std::int64_t sequence) const { return positions(sequence, coordinate_); }

  // All take contiguous tensors, and count elements. Messages from one rank to another arrive in their order.
  virtual std::unique_ptr<Exchange> send(const at::Tensor& tensor, int to) = 0;
  virtual std::unique_ptr<Exchange> receive(const at::Tensor& tensor, int from) = 0;

  // Collective over the axis, as those below. In place.
  virtual std::unique_ptr<Exchange> sum(const at::Tensor& tensor, Subject subject) = 0;
  // output = the ranks' inputs one after the other, counts[i] of rank i.
  virtual std::unique_ptr<Exchange> gather(const at::Tensor& output, const at::Tensor& input,
                                           const std::vector<std::int64_t>& counts) = 0;
  // output = this rank's counts[coordinate] of the sum of inputs.
  virtual std::unique_ptr<Exchange> scatter(const at::Tensor& output, const at::Tensor& input,
                                            const std::vector<std::int64_t>& counts, Subject subject) = 0;
  // Part i of the input goes to rank i; part i of the output comes from rank i.
  virtual std::unique_ptr<Exchange> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                               const std::vector<std::int64_t>& output_counts,
                                               const std::vector<std::int64_t>& input_counts) = 0;

 private:
  ContextSharing sharing_;
  int coordinate_;
};

}  // namespace orthant::nn
