#include "orthant/parallel/data/gradient_sums.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"

namespace orthant {

GradientSums::GradientSums(const std::vector<std::unique_ptr<FlatParameters>>& buffers, const UnitBuffers& units,
                           const DataPolicy& policy, TensorPartials& partials, TiedSums& tied, GradientGroups groups,
                           GradientHook hook)
    : buffers_(buffers),
      units_(units),
      policy_(policy),
      partials_(partials),
      tied_(tied),
      groups_(std::move(groups)),
      hook_(std::move(hook)),
      added_(buffers.size()) {
  for (std::size_t u = 0; u < units.unit_groups.size(); ++u) {
    group_holders_.resize(std::max(group_holders_.size(), to_index(units.unit_groups[u]) + 1));
    if (!units.held[u].empty()) ++group_holders_[to_index(units.unit_groups[u])];
  }
}

std::vector<Subject> GradientSums::subjects_of(const std::vector<int>& buffers) const {
  std::vector<Subject> subjects;
  for (const int b : buffers) subjects.push_back(buffers_[to_index(b)]->subject());
  return subjects;
}

void GradientSums::reduce(int unit, int microbatch) {
  const bool early = microbatch >= 0 && !policy_.accumulate_sharded;  // others accumulate in shards, these do not
  if (early || units_.held[to_index(unit)].empty()) return;
  // In shards every microbatch has been sent; what is left is the sum over replicas.
  const bool rest = policy_.accumulate_sharded && microbatch < 0;
  if (!rest) {
    for (const int b : units_.held[to_index(unit)]) buffers_[to_index(b)]->complete_gradients();
    partials_.start(unit);
  }
  collect(unit, microbatch);
}

void GradientSums::collect(int unit, int microbatch) {
  const auto& held = units_.held[to_index(unit)];
  if (policy_.shards_gradients()) {
    const std::pair key(units_.unit_groups[to_index(unit)], microbatch);
    auto& waiting = waiting_[key];
    waiting.units.push_back(unit);
    waiting.buffers.insert(waiting.buffers.end(), held.begin(), held.end());
    if (waiting.units.size() < group_holders_[to_index(key.first)]) return;
    const auto complete = std::move(waiting.buffers);
    waiting_.erase(key);
    send(complete, microbatch);
    return;
  }
  for (const int b : held) {
    bucket_.push_back(b);
    bucket_bytes_ += static_cast<std::int64_t>(buffers_[to_index(b)]->gradient().nbytes());
  }
  if (bucket_bytes_ < policy_.bucket_bytes) return;
  bucket_bytes_ = 0;
  send(std::exchange(bucket_, {}), microbatch);
}

void GradientSums::send(const std::vector<int>& buffers, int microbatch) {
  if (buffers.empty()) return;
  partials_.finish();
  const bool last = microbatch < 0;
  if (!policy_.shards_state()) {
    start_sum(buffers);
  } else if (policy_.accumulate_sharded && last) {
    while (!scatters_.empty()) finish_scatter();
    start_sum(buffers);
    for (const int b : buffers) added_[to_index(b)] = false;
  } else {
    start_scatter(buffers, last);
    // Full gradients wait for nobody else; neither does a sum over replicas.
    const bool soon = policy_.shards_gradients() || groups_.num_copies > 1;
    while (soon && scatters_.size() > 1) finish_scatter();
  }
}

void GradientSums::start_scatter(const std::vector<int>& buffers, bool last) {
  Scatter scatter{.buffers = buffers, .received = {}, .work = {}, .last = last};
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> inputs;
  for (const int b : buffers) {
    const auto& buffer = *buffers_[to_index(b)];
    const auto full = buffer.gradient();
    const auto own = [&](const at::Tensor& flat) {
      return flat.narrow(0, buffer.owned().begin, buffer.owned().size());
    };
    const auto input = hook_ ? encoded(hook_, full) : full;
    const bool direct = !hook_ && !added_[to_index(b)];
    scatter.received.push_back(direct ? at::Tensor() : own(input));
    inputs.push_back(input);
    outputs.push_back(direct ? buffer.owned_gradient() : scatter.received.back());
  }
  scatter.work = groups_.shards.reduce_scatter(outputs, inputs, comm::Reduction::sum, subjects_of(buffers));
  scatters_.push_back(std::move(scatter));
}

void GradientSums::finish_scatter() {
  auto scatter = std::move(scatters_.front());
  scatters_.pop_front();
  scatter.work.wait();
  for (std::size_t i = 0; i < scatter.buffers.size(); ++i) {
    const int b = scatter.buffers[i];
    const auto& received = scatter.received[i];
    const auto& target = buffers_[to_index(b)]->owned_gradient();
    if (received.defined() && added_[to_index(b)]) {
      auto sum = received;
      if (hook_) {
        sum = at::empty_like(target);
        hook_.decode(received, sum);
      }
      target.add_(sum);
    } else if (received.defined()) {
      if (hook_) {
        hook_.decode(received, target);
      } else {
        target.copy_(received);
      }
    }
    added_[to_index(b)] = policy_.accumulate_sharded;
    buffers_[to_index(b)]->release_gradients();
  }
  if (scatter.last) start_sum(scatter.buffers);
}

// Of those that other stages have a part in, finish() tells.
void GradientSums::tell(const std::vector<int>& buffers) const {
  if (!listener_) return;
  for (const int b : buffers) {
    if (!tied_.sums(b)) listener_(b);
  }
}

void GradientSums::settle(int buffer) {
  const auto travels = [&](const Scatter& scatter) {
    return std::ranges::find(scatter.buffers, buffer) != scatter.buffers.end();
  };
  while (std::ranges::any_of(scatters_, travels)) finish_scatter();
}

void GradientSums::start_sum(const std::vector<int>& buffers) {
  if (groups_.num_copies == 1) {
    tell(buffers);
    return;
  }
  Sum sum;
  sum.buffers = buffers;
  std::vector<at::Tensor> tensors;
  for (const int b : sum.buffers) {
    const auto& owned = buffers_[to_index(b)]->owned_gradient();
    tensors.push_back(hook_ ? encoded(hook_, owned) : owned);
  }
  if (hook_) sum.travelling = tensors;
  sum.work = groups_.copies.all_reduce(tensors, comm::Reduction::sum, subjects_of(buffers));
  sums_.push_back(std::move(sum));
}

void GradientSums::finish() {
  if (!waiting_.empty()) throw InternalError("gradients of a unit group are complete for some of its units only");
  if (!bucket_.empty()) {
    bucket_bytes_ = 0;
    send(std::exchange(bucket_, {}), /*microbatch=*/-1);
  }
  while (!scatters_.empty()) finish_scatter();
  for (auto& sum : sums_) {
    sum.work.wait();
    for (std::size_t i = 0; i < sum.travelling.size(); ++i) {
      hook_.decode(sum.travelling[i], buffers_[to_index(sum.buffers[i])]->owned_gradient());
    }
  }
  for (const auto& sum : sums_) tell(sum.buffers);
  sums_.clear();
  tied_.run();
  if (!listener_) return;
  for (const int b : tied_.buffers()) listener_(b);
}

}  // namespace orthant
