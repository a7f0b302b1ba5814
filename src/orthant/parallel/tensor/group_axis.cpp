#include "orthant/parallel/tensor/group_axis.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/parallel/tensor/started_call.h"

namespace orthant {
GroupAxis::GroupAxis(comm::Group group, const TensorSharing& sharing)
    : TensorAxis(sharing, group.index()), group_(std::move(group)) {
  if (group_.size() == sharing.degree) return;
  throw InternalError(
      fmt::format("a tensor axis of {} over group {} of {} ranks", sharing.degree, group_.name(), group_.size()));
}

std::unique_ptr<nn::Exchange> GroupAxis::sum(const at::Tensor& tensor, Subject subject) {
  return started(group_.all_reduce(tensor, comm::Reduction::sum, subject));
}

std::unique_ptr<nn::Exchange> GroupAxis::maximum(const at::Tensor& tensor) {
  return started(group_.all_reduce(tensor, comm::Reduction::max));
}

std::unique_ptr<nn::Exchange> GroupAxis::gather(const at::Tensor& output, const at::Tensor& input) {
  return started(group_.all_gather(output, input, counts(output)));
}

std::unique_ptr<nn::Exchange> GroupAxis::scatter(const at::Tensor& output, const at::Tensor& input, Subject subject) {
  return started(group_.reduce_scatter(output, input, counts(input), comm::Reduction::sum, subject));
}

std::vector<std::int64_t> GroupAxis::counts(const at::Tensor& whole) const {
  const std::int64_t entries = whole.size(0);
  if (entries % degree() == 0) return {};
  const std::int64_t width = whole.numel() / std::max<std::int64_t>(entries, 1);
  std::vector<std::int64_t> parts;
  for (int i = 0; i < degree(); ++i) parts.push_back(balanced_range(entries, degree(), i).size() * width);
  return parts;
}

}  // namespace orthant
