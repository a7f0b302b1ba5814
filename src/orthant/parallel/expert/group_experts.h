// The ranks of ep over a group.
#pragma once

#include "orthant/comm/group.h"
#include "orthant/nn/expert_axis.h"

namespace orthant {

class GroupExperts : public nn::ExpertAxis {
 public:
  explicit GroupExperts(comm::Group group);

  std::unique_ptr<nn::Exchange> all_to_all(const at::Tensor& output, const at::Tensor& input,
                                           const std::vector<std::int64_t>& output_rows,
                                           const std::vector<std::int64_t>& input_rows) override;

 private:
  comm::Group group_;
};

}  // namespace orthant
