#include "orthant/parallel/context/group_context.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/parallel/tensor/started_call.h"

namespace orthant {
namespace {

// Every rank to every other: what it sends in a step goes to the reader of that step.
std::vector<comm::MessagePair> ring_pairs(int degree) {
  std::vector<comm::MessagePair> pairs;
  for (int step = 1; step < degree; ++step) {
    for (int from = 0; from < degree; ++from) pairs.push_back({from, (from + step) % degree});
  }
  return pairs;
}

}  // namespace

GroupContext::GroupContext(comm::Group group, const ContextSharing& sharing)
    : ContextAxis(sharing, group.index()), group_(std::move(group)) {
  if (group_.size() != sharing.degree) {
    throw InternalError(
        fmt::format("a context axis of {} over group {} of {} ranks", sharing.degree, group_.name(), group_.size()));
  }
  if (sharing.way == ContextWay::ring) group_.connect(ring_pairs(sharing.degree));
}

std::unique_ptr<nn::Exchange> GroupContext::send(const at::Tensor& tensor, int to) {
  return started(group_.send(tensor, to));
}

std::unique_ptr<nn::Exchange> GroupContext::receive(const at::Tensor& tensor, int from) {
  return started(group_.receive(tensor, from));
}

std::unique_ptr<nn::Exchange> GroupContext::sum(const at::Tensor& tensor, Subject subject) {
  return started(group_.all_reduce(tensor, comm::Reduction::sum, subject));
}

std::unique_ptr<nn::Exchange> GroupContext::gather(const at::Tensor& output, const at::Tensor& input,
                                                   const std::vector<std::int64_t>& counts) {
  return started(group_.all_gather(output, input, counts));
}

std::unique_ptr<nn::Exchange> GroupContext::scatter(const at::Tensor& output, const at::Tensor& input,
                                                    const std::vector<std::int64_t>& counts, Subject subject) {
  return started(group_.reduce_scatter(output, input, counts, comm::Reduction::sum, subject));
}

std::unique_ptr<nn::Exchange> GroupContext::all_to_all(const at::Tensor& output, const at::Tensor& input,
                                                       const std::vector<std::int64_t>& output_counts,
                                                       const std::vector<std::int64_t>& input_counts) {
  return started(group_.all_to_all(output, input, output_counts, input_counts));
}

}  // namespace orthant
