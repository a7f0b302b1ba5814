// An independent judge of lowered lists: it runs them with real numbers, really waiting on queues, and compares every
// value and every reduced gradient with a run of the graph without any schedule. It shares no code with the validator.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "orthant/schedule/actions.h"
#include "orthant/schedule/stages.h"

namespace orthant::test {

using Number = std::uint64_t;

// Depends on the order of its arguments.
inline Number mix(Number left, Number right) {
  return (left ^ (right + 0x9e3779b97f4a7c15 + (left << 6) + (left >> 2))) * 0xff51afd7ed558ccd;
}

using Key = std::pair<int, int>;                // unit or value, microbatch
using GradientKey = std::tuple<int, int, int>;  // value, consumer, microbatch

// The arithmetic of a graph, one unit at a time.
class UnitArithmetic {
 public:
  explicit UnitArithmetic(const GraphSpec& graph) : graph_(graph) {
    for (const UnitSpec& unit : graph.units) {
      inputs_.push_back(indices(unit.inputs));
      outputs_.push_back(indices(unit.outputs));
    }
    for (const ValueSpec& value : graph.values) {
      producer_.push_back(graph.producer(value.name));
      consumers_.push_back(graph.consumers(value.name));
    }
  }

  const std::vector<int>& inputs(int unit) const { return inputs_[static_cast<std::size_t>(unit)]; }
  const std::vector<int>& outputs(int unit) const { return outputs_[static_cast<std::size_t>(unit)]; }
  int producer(int value) const { return producer_[static_cast<std::size_t>(value)]; }
  const std::vector<int>& consumers(int value) const { return consumers_[static_cast<std::size_t>(value)]; }
  bool differentiable(int value) const { return graph_.values[static_cast<std::size_t>(value)].differentiable; }

  // Forward: what backward will need.
  static Number activation(int unit, int microbatch, const std::vector<Number>& inputs) {
    Number result = mix(static_cast<Number>(unit), static_cast<Number>(microbatch));
    for (const Number input : inputs) result = mix(result, input);
    return result;
  }
  static Number output(Number activation, int value) { return mix(activation, static_cast<Number>(value) + 1000); }
  // Backward: of the sums of the consumers' gradients of each output.
  static Number gradient(Number activation, const std::vector<Number>& outputs) {
    Number result = mix(activation, 77);
    for (const Number output : outputs) result = mix(result, output);
    return result;
  }
  static Number input_gradient(Number gradient, int value) { return mix(gradient, static_cast<Number>(value) + 2000); }
  static Number add_weights(Number sum, Number gradient) { return mix(sum, gradient); }

 private:
  std::vector<int> indices(const std::vector<std::string>& names) const {
    std::vector<int> found;
    for (const std::string& name : names) {
      for (std::size_t v = 0; v < graph_.values.size(); ++v) {
        if (graph_.values[v].name == name) found.push_back(static_cast<int>(v));
      }
    }
    return found;
  }

  const GraphSpec& graph_;
  std::vector<std::vector<int>> inputs_, outputs_;  // per unit
  std::vector<int> producer_;                       // per value
  std::vector<std::vector<int>> consumers_;         // per value
};

// What a step leaves behind: all values, and per unit the sum of its weight gradients.
struct StepResult {
  std::map<Key, Number> values;
  std::map<int, Number> weights;
};

inline StepResult run_without_schedule(const GraphSpec& graph, int microbatches) {
  const UnitArithmetic units(graph);
  StepResult result;
  for (int m = 0; m < microbatches; ++m) {
    std::map<int, Number> activations;
    for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
      std::vector<Number> inputs;
      for (const int v : units.inputs(u)) inputs.push_back(result.values.at({v, m}));
      activations[u] = UnitArithmetic::activation(u, m, inputs);
      for (const int v : units.outputs(u)) result.values[{v, m}] = UnitArithmetic::output(activations[u], v);
    }
    std::map<int, Number> sums;  // gradients, per value
    for (int u = static_cast<int>(graph.units.size()) - 1; u >= 0; --u) {
      std::vector<Number> outputs;
      for (const int v : units.outputs(u)) outputs.push_back(sums[v]);
      const Number gradient = UnitArithmetic::gradient(activations[u], outputs);
      for (const int v : units.inputs(u)) {
        if (units.differentiable(v)) sums[v] += UnitArithmetic::input_gradient(gradient, v);
      }
      result.weights[u] = UnitArithmetic::add_weights(result.weights[u], gradient);
    }
  }
  return result;
}

class ValueRun {
 public:
  ValueRun(const std::vector<std::vector<Action>>& lists, const StageMap& map, const GraphSpec& graph, int microbatches)
      : lists_(lists), graph_(graph), microbatches_(microbatches), units_(graph), state_(lists.size()) {
    for (std::size_t s = 0; s < map.units.size(); ++s) {
      for (const int unit : map.units[s]) pp_coordinate_of_[unit] = map.pp_coordinates[s];
    }
    for (const auto& list : lists) {
      for (const Action& action : list) {
        training_ = training_ || action.kind == ActionKind::backward || action.kind == ActionKind::backward_input ||
                    action.kind == ActionKind::backward_weight;
      }
    }
  }

  // True when the run ends with the right numbers and nothing left over.
  bool succeeds() {
    std::vector<std::size_t> next(lists_.size(), 0);
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t pp_coordinate = 0; pp_coordinate < lists_.size(); ++pp_coordinate) {
        if (next[pp_coordinate] == lists_[pp_coordinate].size()) continue;
        const Outcome outcome = step(static_cast<int>(pp_coordinate), lists_[pp_coordinate][next[pp_coordinate]]);
        if (outcome == Outcome::wrong) return false;
        if (outcome == Outcome::waits) continue;
        ++next[pp_coordinate];
        moved = true;
      }
    }
    for (std::size_t pp_coordinate = 0; pp_coordinate < lists_.size(); ++pp_coordinate) {
      if (next[pp_coordinate] != lists_[pp_coordinate].size()) return false;
    }
    return nothing_left() && right_numbers();
  }

 private:
  enum class Outcome { done, waits, wrong };

  struct PpState {
    std::map<Key, Number> values;
    std::set<Key> unread;                     // values that were received and nobody has read
    std::map<Key, Number> activations;        // from F to B
    std::map<GradientKey, Number> gradients;  // of single consumers, until the producer's B
    std::map<GradientKey, Number> outgoing;   // gradients for other pp coordinates, until sent
    std::map<Key, Number> unit_gradients;     // from B to W
    std::map<int, Number> weights;
    std::map<int, std::map<int, Number>> reduced;  // unit: the weights on this pp coordinate at that moment
  };

  struct Parcel {
    GradientKey label;
    Number number;
  };

  Outcome step(int pp_coordinate, const Action& action) {
    PpState& state = state_[static_cast<std::size_t>(pp_coordinate)];
    const GradientKey label = {action.value, action.consumer, action.microbatch};
    const bool gradient = action.kind == ActionKind::send_gradient || action.kind == ActionKind::receive_gradient;
    switch (action.kind) {
      case ActionKind::forward:
        return forward(pp_coordinate, state, action) ? Outcome::done : Outcome::wrong;
      case ActionKind::backward:
        return inputs(pp_coordinate, state, action) && weights(state, action) ? Outcome::done : Outcome::wrong;
      case ActionKind::backward_input:
        return inputs(pp_coordinate, state, action) ? Outcome::done : Outcome::wrong;
      case ActionKind::backward_weight:
        return weights(state, action) ? Outcome::done : Outcome::wrong;
      case ActionKind::reduce:
        return state.reduced.emplace(action.unit, state.weights).second ? Outcome::done : Outcome::wrong;
      case ActionKind::send:
      case ActionKind::send_gradient: {
        const auto number =
            gradient ? take(state.outgoing, label) : look(state.values, Key{action.value, action.microbatch});
        if (!number) return Outcome::wrong;
        channels_[{pp_coordinate, action.peer, gradient}].push_back({label, *number});
        return Outcome::done;
      }
      case ActionKind::receive:
      case ActionKind::receive_gradient: {
        auto& channel = channels_[{action.peer, pp_coordinate, gradient}];
        if (channel.empty()) return Outcome::waits;
        if (channel.front().label != label) return Outcome::wrong;
        const Number number = channel.front().number;
        channel.pop_front();
        if (!gradient) state.unread.insert(Key{action.value, action.microbatch});
        const bool fresh = gradient ? state.gradients.emplace(label, number).second
                                    : state.values.emplace(Key{action.value, action.microbatch}, number).second;
        return fresh ? Outcome::done : Outcome::wrong;
      }
      default:
        return Outcome::done;
    }
  }

  bool forward(int pp_coordinate, PpState& state, const Action& action) {
    const Key key = {action.unit, action.microbatch};
    const bool asked = action.microbatch >= 0 && action.microbatch < microbatches_;
    if (!asked || pp_coordinate_of_.at(action.unit) != pp_coordinate || !ran_.insert(key).second) return false;
    std::vector<Number> inputs;
    for (const int v : units_.inputs(action.unit)) {
      const auto number = look(state.values, Key{v, action.microbatch});
      if (!number) return false;
      inputs.push_back(*number);
      state.unread.erase(Key{v, action.microbatch});
    }
    const Number activation = UnitArithmetic::activation(action.unit, action.microbatch, inputs);
    for (const int v : units_.outputs(action.unit)) {
      state.values[{v, action.microbatch}] = UnitArithmetic::output(activation, v);
    }
    if (training_) state.activations[key] = activation;
    return true;
  }

  bool inputs(int pp_coordinate, PpState& state, const Action& action) {
    const Key key = {action.unit, action.microbatch};
    const auto activation = take(state.activations, key);
    if (!activation) return false;
    std::vector<Number> outputs;
    for (const int v : units_.outputs(action.unit)) {
      Number& sum = outputs.emplace_back(0);
      if (!units_.differentiable(v)) continue;
      for (const int consumer : units_.consumers(v)) {
        const auto number = take(state.gradients, GradientKey{v, consumer, action.microbatch});
        if (!number) return false;
        sum += *number;
      }
    }
    const Number gradient = UnitArithmetic::gradient(*activation, outputs);
    for (const int v : units_.inputs(action.unit)) {
      if (!units_.differentiable(v)) continue;
      auto& target = pp_coordinate_of_.at(units_.producer(v)) == pp_coordinate ? state.gradients : state.outgoing;
      target[{v, action.unit, action.microbatch}] = UnitArithmetic::input_gradient(gradient, v);
    }
    state.unit_gradients[key] = gradient;
    return true;
  }

  bool weights(PpState& state, const Action& action) {
    const auto gradient = take(state.unit_gradients, Key{action.unit, action.microbatch});
    if (!gradient) return false;
    Number& sum = state.weights[action.unit];
    sum = UnitArithmetic::add_weights(sum, *gradient);
    return true;
  }

  bool nothing_left() const {
    for (const auto& [channel, parcels] : channels_) {
      if (!parcels.empty()) return false;
    }
    for (const PpState& state : state_) {
      if (!state.unread.empty() || !state.activations.empty() || !state.gradients.empty() || !state.outgoing.empty() ||
          !state.unit_gradients.empty()) {
        return false;
      }
    }
    return ran_.size() == graph_.units.size() * static_cast<std::size_t>(microbatches_);
  }

  bool right_numbers() const {
    const StepResult expected = run_without_schedule(graph_, microbatches_);
    for (int pp_coordinate = 0; pp_coordinate < static_cast<int>(state_.size()); ++pp_coordinate) {
      const PpState& state = state_[static_cast<std::size_t>(pp_coordinate)];
      for (const auto& [key, number] : state.values) {
        if (expected.values.at(key) != number) return false;
      }
      std::map<int, std::set<int>> due;  // the lowest local user of a parameter, and all local users
      for (const UnitSpec& owner : graph_.units) {
        for (const ParameterSpec& parameter : owner.parameters) {
          std::set<int> here;
          for (const int user : graph_.users(parameter.name)) {
            if (pp_coordinate_of_.at(user) == pp_coordinate) here.insert(user);
          }
          if (training_ && parameter.trainable && !here.empty()) due[*here.begin()].insert(here.begin(), here.end());
        }
      }
      if (due.size() != state.reduced.size()) return false;
      for (const auto& [unit, users] : due) {
        if (!state.reduced.contains(unit)) return false;
        for (const int user : users) {
          if (look(state.reduced.at(unit), user) != expected.weights.at(user)) return false;
        }
      }
      for (const auto& [unit, number] : state.weights) {
        if (expected.weights.at(unit) != number) return false;
      }
    }
    return true;
  }

  template <class Map>
  static std::optional<Number> look(const Map& map, const typename Map::key_type& key) {
    const auto found = map.find(key);
    return found == map.end() ? std::nullopt : std::optional<Number>(found->second);
  }

  template <class Map>
  static std::optional<Number> take(Map& map, const typename Map::key_type& key) {
    const auto number = look(map, key);
    map.erase(key);
    return number;
  }

  const std::vector<std::vector<Action>>& lists_;
  const GraphSpec& graph_;
  int microbatches_;
  UnitArithmetic units_;
  bool training_ = false;
  std::map<int, int> pp_coordinate_of_;
  std::set<Key> ran_;
  std::vector<PpState> state_;
  std::map<std::tuple<int, int, bool>, std::deque<Parcel>> channels_;
};

}  // namespace orthant::test
