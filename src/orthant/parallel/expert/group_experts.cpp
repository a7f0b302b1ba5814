#include "orthant/parallel/expert/group_experts.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "orthant/parallel/tensor/started_call.h"

namespace orthant {

GroupExperts::GroupExperts(comm::Group group) : nn::ExpertAxis(group.size(), group.index()), group_(std::move(group)) {}

std::unique_ptr<nn::Exchange> GroupExperts::all_to_all(const at::Tensor& output, const at::Tensor& input,
                                                       const std::vector<std::int64_t>& output_rows,
                                                       const std::vector<std::int64_t>& input_rows) {
  // Counts are elements of dim 0 of flat tensors.
  const std::int64_t width = input.dim() == 1 ? 1 : input.size(1);
  const auto elements = [&](const std::vector<std::int64_t>& rows) {
    std::vector<std::int64_t> counts;
    for (const auto count : rows) counts.push_back(count * width);
    return counts;
  };
  return started(group_.all_to_all(output.view({-1}), input.view({-1}), elements(output_rows), elements(input_rows)));
}

}  // namespace orthant
