// The context axis over a group of ranks: what operations exchange, as calls of comm. One per rank.
#pragma once

#include "orthant/comm/group.h"
#include "orthant/nn/context_axis.h"

namespace orthant {

class GroupContext : public nn::ContextAxis {
 public:
  // `group`: the cp axis, for activations; as many ranks as share the rows. Collective over it: a ring's ranks connect.
  GroupContext(comm::Group group, const ContextSharing& sharing);

  std::unique_ptr<nn::Exchange> send(const at::Tensor& tensor, int to) override;
  std::unique_ptr<nn::Exchange> receive(const at::Tensor& tensor, int from) override;
  std::unique_ptr<nn::Exchange> sum(const at::Tensor& tensor, Subject subject) override;
  std::unique_ptr<nn::Exchange> gather(const at::Tensor& output, const at::Tensor& input,
                                       const std::vector<std::int64_t>& counts) override;
  std::unique_ptr<nn::Exchange> scatter(const at::Tensor& output, const at::Tensor& input,
                                        const std::vector<std::int64_t>& counts, Subject subject) override;
  std::unique_ptr<nn::Exchange> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                           const std::vector<std::int64_t>& output_counts,
                                           const std::vector<std::int64_t>& input_counts) override;

 private:
  comm::Group group_;
};

}  // namespace orthant
