#include "orthant/plan/data_state.h"

#include <algorithm>
#include <deque>
#include <set>
#include <utility>

#include "orthant/plan/data_calls.h"

namespace orthant {
namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

std::int64_t gathered_peak(const UnitBuffers& buffers, const std::vector<Action>& actions) {
  std::vector<int> holders(buffers.all.size(), 0);
  std::int64_t alive = 0;
  std::int64_t peak = 0;
  for (const Action& action : actions) {
    if (action.kind != ActionKind::gather && action.kind != ActionKind::free) continue;
    for (const int b : buffers.used[at(action.unit)]) {
      if (action.kind == ActionKind::gather && holders[at(b)]++ == 0) alive += buffers[b].size;
      if (action.kind == ActionKind::free && --holders[at(b)] == 0) alive -= buffers[b].size;
    }
    peak = std::max(peak, alive);
  }
  return peak;
}

// Full gradients that come and go along a list; in elements.
class FullGradients {
 public:
  FullGradients(const UnitBuffers& buffers, const DataSettings& settings, const std::vector<Action>& actions)
      : buffers_(buffers), settings_(settings), actions_(actions), calls_(gradient_calls(buffers, settings, actions)) {}

  std::int64_t peak() {
    std::size_t next = 0;
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const Action& action = actions_[i];
      if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) make(action.unit);
      for (; next < calls_.size() && calls_[next].position == i; ++next) send(calls_[next]);
    }
    return peak_;
  }

 private:
  void make(int unit) {
    for (const int b : buffers_.used[at(unit)]) {
      if (!buffers_[b].trainable) continue;
      while (is_under_way(b)) finish_oldest();
      if (alive_.insert({b, unit}).second) alive_elements_ += buffers_[b].size;
    }
    peak_ = std::max(peak_, alive_elements_);
  }

  void send(const DataCall& call) {
    const bool scattered_before = settings_.policy.accumulate_sharded && call.microbatch < 0;
    if (!scattered_before) under_way_.push_back(call.buffers);
    while (under_way_.size() > (scattered_before ? 0 : 1)) finish_oldest();
  }

  bool is_under_way(int buffer) const {
    return std::ranges::any_of(under_way_,
                               [&](const auto& call) { return std::ranges::find(call, buffer) != call.end(); });
  }

  void finish_oldest() {
    for (const int b : under_way_.front()) {
      for (const int user : buffers_[b].users) {
        if (alive_.erase({b, user}) > 0) alive_elements_ -= buffers_[b].size;
      }
    }
    under_way_.pop_front();
  }

  const UnitBuffers& buffers_;
  const DataSettings& settings_;
  const std::vector<Action>& actions_;
  std::vector<DataCall> calls_;
  std::set<std::pair<int, int>> alive_;  // buffer, user
  std::int64_t alive_elements_ = 0;
  std::int64_t peak_ = 0;
  std::deque<std::vector<int>> under_way_;  // buffers of each call
};

}  // namespace

DataState data_state(const GraphSpec& graph, const DataSettings& settings) {
  const DataPolicy& policy = settings.policy;
  const std::int64_t shards = policy.shards_state() ? settings.mesh.degree(Axis::fsdp) : 1;
  const std::int64_t params = bytes_of(settings.params);
  const std::int64_t compute = bytes_of(settings.compute);
  const bool offloaded = policy.offload != Offload::none;
  const bool shares = !policy.shards_parameters() && settings.params == settings.compute && !offloaded;
  DataState state;
  for (const FlatBuffer& buffer :
       unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_ranks).all) {
    const std::int64_t owned = buffer.size / shards;
    if (!shares) state.parameters += owned * params;
    if (!policy.shards_parameters()) state.compute += buffer.size * compute;
    // The device keeps a shard of its own to gather from.
    if (policy.shards_parameters() && policy.offload == Offload::optimizer) state.compute += owned * compute;
    if (!buffer.trainable) continue;
    const auto uses = static_cast<std::int64_t>(buffer.users.size());
    state.gradients += (policy.shards_gradients() ? owned : uses * buffer.size) * bytes_of(settings.reduce);
    state.optimizer += settings.optimizer_copies * owned * params;
  }
  return state;
}

DataPeaks data_peaks(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions) {
  const auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_ranks);
  DataPeaks peaks;
  if (settings.policy.shards_parameters()) {
    peaks.gathered = gathered_peak(buffers, actions) * bytes_of(settings.compute);
  }
  if (settings.policy.shards_gradients()) {
    peaks.gradients = FullGradients(buffers, settings, actions).peak() * bytes_of(settings.reduce);
  }
  return peaks;
}

}  // namespace orthant
