// The tensor axis over a group of ranks: what the functions of nn exchange, as calls of comm. One per rank.
#pragma once

#include "orthant/comm/group.h"
#include "orthant/nn/tensor_axis.h"

namespace orthant {

class GroupAxis : public nn::TensorAxis {
 public:
  // `group`: the tp axis, for activations; as many ranks as share the graph.
  GroupAxis(comm::Group group, const TensorSharing& sharing);

  std::unique_ptr<nn::Exchange> sum(const at::Tensor& tensor, Subject subject) override;
  std::unique_ptr<nn::Exchange> maximum(const at::Tensor& tensor) override;
  std::unique_ptr<nn::Exchange> gather(const at::Tensor& output, const at::Tensor& input) override;
  std::unique_ptr<nn::Exchange> scatter(const at::Tensor& output, const at::Tensor& input, Subject subject) override;

 private:
  // Elements of each rank's part of `whole`, cut along dim 0; empty when all parts are equal.
  std::vector<std::int64_t> counts(const at::Tensor& whole) const;

  comm::Group group_;
};

}  // namespace orthant
