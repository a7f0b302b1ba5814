#include "orthant/plan/estimate/step_memory.h"
#include "orthant/layout/data_views.h"

#include <algorithm>
#include <map>
#include <utility>

#include "orthant/base/index.h"
#include "orthant/graph/backward.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/plan/estimate/data_state.h"
#include "orthant/schedule/channel.h"
#include "orthant/schedule/forward_gradients.h"
#include "orthant/schedule/graph_edges.h"

namespace orthant {
namespace {

// Batches on the host: the running one and those that the loader has read ahead.
constexpr double kBatchesOnHost = 3;

class StepWalk {
 public:
  StepWalk(const GraphSpec& graph, const ModelWork& work, const RankStep& step, const PlanSettings& settings)
      : work_(work),
        step_(step),
        recompute_(static_cast<std::size_t>(settings.recompute)),
        edges_(graph),
        backward_(backward_facts(graph)),
        in_forward_(gradients_in_forward(step.actions, graph)) {
    for (const auto& value : graph.values) {
      value_bytes_.push_back(work[to_index(graph.producer(value.name))].output_bytes);
    }
    for (const auto& action : step.actions) {
      if (action.kind == ActionKind::send) ++sends_[{action.value, -1, action.microbatch}];
      if (is_receive(action)) receives_[channel_of(action, step_.pp)].push_back(value_bytes_[to_index(action.value)]);
    }
    for (const auto& [channel, sizes] : receives_) {
      for (std::size_t i = 0; i < std::min(kPostedAhead, sizes.size()); ++i) between_ += sizes[i];
    }
  }

  StepMoment worst() {
    for (const auto& action : step_.actions) run(action);
    return worst_;
  }

 private:
  static bool is_receive(const Action& action) {
    return action.kind == ActionKind::receive || action.kind == ActionKind::receive_gradient;
  }
  bool runs_here(int unit) const { return runs_at(unit, step_.data.unit_pp_coordinates, step_.pp); }

  void run(const Action& action) {
    switch (action.kind) {
      case ActionKind::forward:
        return forward(action);
      case ActionKind::backward:
      case ActionKind::backward_input:
        return backward(action);
      case ActionKind::backward_weight:
        return make_weights(action);
      case ActionKind::send:
      case ActionKind::send_gradient:
        drop_sent();
        sent_ += take(message_of(action));
        return note(0);
      case ActionKind::receive:
      case ActionKind::receive_gradient:
        drop_sent();
        return receive(action);
      default:
        return;
    }
  }

  void forward(const Action& action) {
    gone_ += std::exchange(sent_, 0);
    const auto& unit = work_[to_index(action.unit)];
    for (const int value : edges_.inputs[to_index(action.unit)]) between_ -= take({value, -1, action.microbatch});
    const bool keeps = backward_.units[to_index(action.unit)];
    const bool makes_gradients = keeps && in_forward_.contains({action.unit, action.microbatch});
    const double kept = makes_gradients ? unit.in_forward->kept : keeps ? unit.kept_bytes[recompute_] : 0;
    const double logits = keeps ? unit.logits_bytes : 0;
    activations_ += kept;
    logits_ += logits;
    note(makes_gradients ? unit.in_forward->forward : unit.forward_bytes + (keeps ? 0 : unit.kept_bytes[recompute_]));
    for (const int value : edges_.outputs[to_index(action.unit)]) {
      const Message place{value, -1, action.microbatch};
      const auto readers =
          std::ranges::count_if(edges_.consumers[to_index(value)], [&](int u) { return runs_here(u); });
      put(place, static_cast<int>(readers) + sends_[place]);
    }
  }

  void backward(const Action& action) {
    gone_ += std::exchange(sent_, 0);
    const auto& unit = work_[to_index(action.unit)];
    if (!backward_.units[to_index(action.unit)]) return;
    for (const int value : edges_.outputs[to_index(action.unit)]) {
      for (const int reader : edges_.consumers[to_index(value)]) between_ -= take({value, reader, action.microbatch});
    }
    const bool whole = action.kind == ActionKind::backward;
    const bool made = in_forward_.contains({action.unit, action.microbatch});
    note(made ? unit.in_forward->backward : whole ? unit.backward_bytes + unit.remade_bytes : unit.inputs_bytes);
    activations_ -= made ? unit.in_forward->kept : unit.kept_bytes[recompute_];
    logits_ -= unit.logits_bytes;
    if (!whole) activations_ += unit.deferred_bytes;
    for (const int value : edges_.inputs[to_index(action.unit)]) {
      if (backward_.values[to_index(value)]) put({value, action.unit, action.microbatch}, 1);
    }
    note(0);
  }

  void make_weights(const Action& action) {
    const auto& unit = work_[to_index(action.unit)];
    if (!backward_.units[to_index(action.unit)]) return;
    note(unit.weights_bytes);
    activations_ -= unit.deferred_bytes;
  }

  // The posted buffer becomes the value; another one is posted.
  void receive(const Action& action) {
    const auto channel = channel_of(action, step_.pp);
    const auto& sizes = receives_[channel];
    const auto next = received_[channel]++;
    between_ -= sizes[next];
    if (next + kPostedAhead < sizes.size()) between_ += sizes[next + kPostedAhead];
    const auto readers =
        std::ranges::count_if(edges_.consumers[to_index(action.value)], [&](int u) { return runs_here(u); });
    put(message_of(action), action.kind == ActionKind::receive ? static_cast<int>(readers) : 1);
    note(0);
  }

  // What was sent leaves while something is computed, and is dropped when the links are used again.
  void drop_sent() {
    between_ -= gone_;
    gone_ = 0;
  }

  // A value, or a unit's gradient of one, waits for so many.
  void put(const Message& place, int readers) {
    if (readers == 0) return;
    waiting_[place] = readers;
    between_ += value_bytes_[to_index(place.value)];
  }

  // Bytes that go to the last who waited.
  double take(const Message& place) {
    const auto found = waiting_.find(place);
    if (found == waiting_.end() || --found->second > 0) return 0;
    waiting_.erase(found);
    return value_bytes_[to_index(place.value)];
  }

  void note(double running) {
    const StepMoment now{activations_, logits_, between_ + running};
    if (now.total() > worst_.total()) worst_ = now;
  }

  const ModelWork& work_;
  const RankStep& step_;
  std::size_t recompute_;
  GraphEdges edges_;
  BackwardFacts backward_;
  ForwardGradients in_forward_;
  std::vector<double> value_bytes_;
  std::map<Message, int> sends_;
  std::map<Channel, std::vector<double>> receives_;
  std::map<Channel, std::size_t> received_;
  std::map<Message, int> waiting_;
  double activations_ = 0;
  double logits_ = 0;
  double between_ = 0;  // of units and stages
  double sent_ = 0;     // of those, what is on its way
  double gone_ = 0;     // likewise, what has arrived
  StepMoment worst_;
};

// Outside of the list: first values are drawn parameter by parameter; gradients travel in another type or are converted
// for the update, and are widened for their norm, of which each replica adds up a part.
double other_moments(const GraphSpec& graph, const DataSettings& data, bool on_host) {
  std::int64_t drawn = 0;
  std::int64_t counted = 0;
  std::int64_t trained = 0;
  for (const auto& view : data_views(graph, data)) {
    const std::int64_t parts = view.mesh.group_size({Axis::dp, Axis::fsdp, Axis::cp});
    for (const int b : view.all()) {
      const FlatBuffer& buffer = view.buffers[b];
      const std::int64_t owned = buffer.size / view.num_shards();
      for (const auto& entry : buffer.entries) drawn = std::max(drawn, std::min(entry.elements, owned));
      if (!buffer.trainable) continue;
      trained += owned;
      counted = std::max(counted, buffer.size / parts);
    }
  }
  std::int64_t most = drawn * (data.params == DType::float64 ? 8 : 4);
  if (on_host && data.reduce != DType::float64) most = std::max(most, counted * bytes_of(DType::float64));
  if (data.bf16_hook) most = std::max(most, trained * bytes_of(DType::bfloat16));
  if (data.reduce != data.params) most = std::max(most, trained * bytes_of(data.params));
  return static_cast<double>(most);
}

double batch_bytes(const GraphSpec& graph, const PlanSettings& settings) {
  double bytes = 0;
  for (const auto& field : graph.batch_fields) {
    bytes += static_cast<double>(num_elements(field.shape) * bytes_of(field.dtype));
  }
  return bytes * static_cast<double>(settings.microbatches()) * (settings.on_host ? kBatchesOnHost : 1);
}

}  // namespace

StepMoment worst_moment(const GraphSpec& resolved, const ModelWork& work, const RankStep& step,
                        const PlanSettings& settings) {
  StepMoment worst = StepWalk(resolved, work, step, settings).worst();
  if (const double other = other_moments(resolved, step.data, settings.on_host); other > worst.total())
    worst = {0, 0, other};
  worst.temporary +=
      static_cast<double>(data_pool(resolved, step.data, step.actions)) + batch_bytes(resolved, settings);
  return worst;
}

}  // namespace orthant
