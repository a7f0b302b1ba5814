#include "orthant/plan/estimate/data_state.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "orthant/base/index.h"
#include "orthant/layout/data_views.h"
#include "orthant/schedule/data_calls.h"
#include "orthant/schedule/forward_gradients.h"

namespace orthant {
namespace {

// Blocks by length and type: what was given back is handed out again, and nothing else (BufferPool).
class BlockPool {
 public:
  void take(std::int64_t elements, DType type) {
    auto& blocks = blocks_[{elements, type}];
    if (++blocks.used <= blocks.made) return;
    ++blocks.made;
    bytes_ += elements * bytes_of(type);
  }
  void give_back(std::int64_t elements, DType type) { --blocks_[{elements, type}].used; }

  std::int64_t bytes() const { return bytes_; }  // that were made

 private:
  struct Blocks {
    int used = 0;
    int made = 0;
  };
  std::map<std::pair<std::int64_t, DType>, Blocks> blocks_;
  std::int64_t bytes_ = 0;
};

// Gathered parameters that come and go along a list; in elements.
class GatheredParameters {
 public:
  GatheredParameters(const UnitBuffers& buffers, DType type, BlockPool& pool)
      : buffers_(buffers), type_(type), pool_(pool), holders_(buffers.all.size()) {}

  void run(const Action& action) {
    if (action.kind != ActionKind::gather && action.kind != ActionKind::free) return;
    for (const int b : buffers_.used[to_index(action.unit)]) {
      const auto size = buffers_[b].size;
      if (action.kind == ActionKind::gather && holders_[to_index(b)]++ == 0) {
        alive_ += size;
        pool_.take(size, type_);
      }
      if (action.kind == ActionKind::free && --holders_[to_index(b)] == 0) {
        alive_ -= size;
        pool_.give_back(size, type_);
      }
    }
  }

  std::int64_t alive() const { return alive_; }

 private:
  const UnitBuffers& buffers_;
  DType type_;
  BlockPool& pool_;
  std::vector<int> holders_;
  std::int64_t alive_ = 0;
};

// Full gradients that come and go along a list; in elements.
class FullGradients {
 public:
  FullGradients(const UnitBuffers& buffers, const DataSettings& settings, const GraphSpec& graph,
                const std::vector<Action>& actions, BlockPool& pool)
      : buffers_(buffers),
        settings_(settings),
        pool_(pool),
        calls_(gradient_calls(buffers, settings, actions)),
        in_forward_(gradients_in_forward(actions, graph)) {}

  void begin(const Action& action) {
    const bool forward = action.kind == ActionKind::forward && in_forward_.contains({action.unit, action.microbatch});
    const bool backward = action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight;
    if (forward || backward) make(action.unit);
  }

  // With the calls that follow the action.
  void end(std::size_t position) {
    for (; next_ < calls_.size() && calls_[next_].position == position; ++next_) send(calls_[next_]);
  }

  std::int64_t alive() const { return alive_elements_; }

 private:
  void make(int unit) {
    for (const int b : buffers_.used[to_index(unit)]) {
      if (!buffers_[b].trainable) continue;
      while (is_under_way(b)) finish_oldest();
      if (!alive_.insert({b, unit}).second) continue;
      alive_elements_ += buffers_[b].size;
      pool_.take(buffers_[b].size, settings_.reduce);
    }
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
        if (alive_.erase({b, user}) == 0) continue;
        alive_elements_ -= buffers_[b].size;
        pool_.give_back(buffers_[b].size, settings_.reduce);
      }
    }
    under_way_.pop_front();
  }

  const UnitBuffers& buffers_;
  const DataSettings& settings_;
  BlockPool& pool_;
  std::vector<DataCall> calls_;
  ForwardGradients in_forward_;
  std::size_t next_ = 0;
  std::set<std::pair<int, int>> alive_;  // buffer, user
  std::int64_t alive_elements_ = 0;
  std::deque<std::vector<int>> under_way_;  // buffers of each call
};

struct Walked {
  DataPeaks peaks;
  std::int64_t pool = 0;
};

// What comes and goes of one view.
struct Transient {
  Transient(const DataView& view, const GraphSpec& graph, const std::vector<Action>& actions, BlockPool& pool)
      : parameters(view.settings.policy.shards_parameters()),
        gathered(view.buffers, view.settings.compute, pool),
        gradients(view.buffers, view.settings, graph, actions, pool) {}

  bool parameters;
  GatheredParameters gathered;
  FullGradients gradients;
};

Walked walked(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions) {
  const auto views = data_views(graph, settings);
  BlockPool pool;
  std::deque<Transient> transients;
  for (const DataView& view : views) {
    if (view.settings.policy.shards_gradients()) transients.emplace_back(view, graph, actions, pool);
  }
  DataPeaks peaks;
  for (std::size_t i = 0; i < actions.size(); ++i) {
    std::int64_t gathered = 0;
    std::int64_t gradients = 0;
    for (Transient& view : transients) {
      if (view.parameters) view.gathered.run(actions[i]);
      view.gradients.begin(actions[i]);
      gathered += view.gathered.alive();
      gradients += view.gradients.alive();
    }
    peaks.gathered = std::max(peaks.gathered, gathered * bytes_of(settings.compute));
    peaks.gradients = std::max(peaks.gradients, gradients * bytes_of(settings.reduce));
    for (Transient& view : transients) view.gradients.end(i);
  }
  return {peaks, pool.bytes()};
}

void add_state(DataState& state, const DataView& view) {
  const DataSettings& settings = view.settings;
  const DataPolicy& policy = settings.policy;
  const std::int64_t params = bytes_of(settings.params);
  const std::int64_t compute = bytes_of(settings.compute);
  const bool offloaded = policy.offload != Offload::none;
  const bool shares = !policy.shards_parameters() && settings.params == settings.compute && !offloaded;
  for (const int b : view.all()) {
    const FlatBuffer& buffer = view.buffers[b];
    const std::int64_t owned = buffer.size / view.num_shards();
    if (!shares) state.parameters += owned * (settings.splits_master ? params - compute : params);
    if (!policy.shards_parameters()) state.compute += buffer.size * compute;
    // The device keeps a shard of its own to gather from.
    const bool keeps_shard = policy.offload == Offload::optimizer || settings.splits_master;
    if (policy.shards_parameters() && keeps_shard) state.compute += owned * compute;
    if (!buffer.trainable) continue;
    const auto uses = static_cast<std::int64_t>(buffer.users.size());
    state.gradients += (policy.shards_gradients() ? owned : uses * buffer.size) * bytes_of(settings.reduce);
    state.optimizer += settings.optimizer_copies * owned * params;
  }
}

}  // namespace

DataState data_state(const GraphSpec& graph, const DataSettings& settings) {
  DataState state;
  for (const DataView& view : data_views(graph, settings)) add_state(state, view);
  return state;
}

DataPeaks data_peaks(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions) {
  return walked(graph, settings, actions).peaks;
}

std::int64_t data_pool(const GraphSpec& graph, const DataSettings& settings, const std::vector<Action>& actions) {
  return walked(graph, settings, actions).pool;
}

}  // namespace orthant
