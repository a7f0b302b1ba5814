#include "orthant/schedule/lowering.h"

#include <algorithm>
#include <map>
#include <set>

#include "orthant/base/error.h"
#include "orthant/schedule/channel.h"
#include "orthant/schedule/graph_edges.h"

namespace orthant {
namespace {

bool makes_input_gradients(StageKind kind) {
  return kind == StageKind::B || kind == StageKind::BW;
}

bool makes_weight_gradients(StageKind kind) {
  return kind == StageKind::W || kind == StageKind::BW;
}

ActionKind unit_kind(StageKind kind) {
  switch (kind) {
    case StageKind::F:
      return ActionKind::forward;
    case StageKind::B:
      return ActionKind::backward_input;
    case StageKind::W:
      return ActionKind::backward_weight;
    case StageKind::BW:
      return ActionKind::backward;
  }
  throw InternalError("a stage kind without unit actions");
}

// Who is where, and what each pp coordinate therefore sends.
class Placement {
 public:
  Placement(const StageMap& map, const GraphSpec& graph)
      : map_(map), graph_(graph), edges_(graph), pp_coordinate_of_(graph.units.size(), -1) {
    for (std::size_t s = 0; s < map.units.size(); ++s) {
      for (const int unit : map.units[s])
        pp_coordinate_of_.at(static_cast<std::size_t>(unit)) = map.pp_coordinates.at(s);
    }
  }

  const GraphEdges& edges() const { return edges_; }
  const std::vector<int>& pp_coordinate_of() const { return pp_coordinate_of_; }
  int pp_coordinate_of(int unit) const { return pp_coordinate_of_[static_cast<std::size_t>(unit)]; }
  int writer_pp_coordinate(int value) const {
    return pp_coordinate_of(edges_.producer[static_cast<std::size_t>(value)]);
  }
  const std::vector<int>& units(int stage) const { return map_.units.at(static_cast<std::size_t>(stage)); }
  const std::vector<int>& inputs(int unit) const { return edges_.inputs[static_cast<std::size_t>(unit)]; }
  const std::vector<int>& outputs(int unit) const { return edges_.outputs[static_cast<std::size_t>(unit)]; }
  const std::vector<int>& consumers(int value) const { return edges_.consumers[static_cast<std::size_t>(value)]; }
  bool differentiable(int value) const { return graph_.values[static_cast<std::size_t>(value)].differentiable; }

  // What `pp_coordinate` sends once a stage's F has run there.
  std::vector<Action> value_sends(int stage, int microbatch, int pp_coordinate) const {
    std::vector<Action> sends;
    for (const int unit : units(stage)) {
      for (const int value : outputs(unit)) {
        std::set<int> peers;
        for (const int consumer : consumers(value)) peers.insert(pp_coordinate_of(consumer));
        peers.erase(pp_coordinate);
        for (const int peer : peers) {
          sends.push_back({.kind = ActionKind::send, .value = value, .peer = peer, .microbatch = microbatch});
        }
      }
    }
    return sends;
  }

  // What `pp_coordinate` sends once a unit's B or BW has run there.
  std::vector<Action> gradient_sends(int unit, int microbatch, int pp_coordinate) const {
    std::vector<Action> sends;
    for (const int value : inputs(unit)) {
      const int peer = writer_pp_coordinate(value);
      if (peer == pp_coordinate || !differentiable(value)) continue;
      sends.push_back({.kind = ActionKind::send_gradient,
                       .value = value,
                       .consumer = unit,
                       .peer = peer,
                       .microbatch = microbatch});
    }
    return sends;
  }

 private:
  const StageMap& map_;
  const GraphSpec& graph_;
  GraphEdges edges_;
  std::vector<int> pp_coordinate_of_;
};

// The messages that a pp coordinate gets, in the order in which each channel delivers them.
class Inbox {
 public:
  Inbox(const StageTable& table, const Placement& placement, int pp_coordinate) {
    for (int peer = 0; peer < static_cast<int>(table.actions.size()); ++peer) {
      if (peer == pp_coordinate) continue;
      const auto add = [&](const std::vector<Action>& sends) {
        for (const Action& send : sends) {
          if (send.peer == pp_coordinate)
            queues_[{peer, pp_coordinate, message_of(send).is_gradient()}].add(message_of(send));
        }
      };
      for (const auto& [stage, kind, microbatch] : table.actions[static_cast<std::size_t>(peer)]) {
        if (kind == StageKind::F) add(placement.value_sends(stage, microbatch, peer));
        if (!makes_input_gradients(kind)) continue;
        const auto& units = placement.units(stage);
        for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
          add(placement.gradient_sends(*unit, microbatch, peer));
        }
      }
    }
  }

  // Those to receive now so that `wanted` is there: up to it, nothing when it has been received. A message that nobody
  // sends is given back alone; the validator finds it.
  std::vector<Message> up_to(const Channel& channel, const Message& wanted) {
    Queue& queue = queues_[channel];
    const auto found = queue.place.find(wanted);
    if (found == queue.place.end()) return {wanted};
    std::vector<Message> received;
    for (; queue.next <= found->second; ++queue.next) received.push_back(queue.messages[queue.next]);
    return received;
  }

 private:
  struct Queue {
    std::vector<Message> messages;
    std::map<Message, std::size_t> place;
    std::size_t next = 0;

    void add(const Message& message) {
      place.emplace(message, messages.size());
      messages.push_back(message);
    }
  };

  std::map<Channel, Queue> queues_;
};

class Lowering {
 public:
  Lowering(const StageTable& table, const StageMap& map, const GraphSpec& graph, int pp_coordinate)
      : actions_(table.actions.at(static_cast<std::size_t>(pp_coordinate))),
        pp_coordinate_(pp_coordinate),
        placement_(map, graph),
        inbox_(table, placement_, pp_coordinate),
        reduced_(reduced_units(placement_.edges(), placement_.pp_coordinate_of(), pp_coordinate)) {
    std::vector<int> weight_gradients(graph.units.size(), 0);
    for (const StageAction& action : actions_) {
      if (!makes_weight_gradients(action.kind)) continue;
      for (const int unit : placement_.units(action.stage)) ++weight_gradients[static_cast<std::size_t>(unit)];
    }
    for (const ReducedUnit& reduced : reduced_) {
      int& left = weight_gradients_left_.emplace_back(0);
      for (const int user : reduced.users) left += weight_gradients[static_cast<std::size_t>(user)];
    }
  }

  LoweredList run() {
    for (std::size_t i = 0; i < actions_.size(); ++i) {
      const auto& [stage, kind, microbatch] = actions_[i];
      if (kind == StageKind::F) {
        forward(stage, microbatch);
      } else {
        backward(stage, kind, microbatch);
      }
      list_.origins.resize(list_.actions.size(), static_cast<int>(i));
    }
    return std::move(list_);
  }

 private:
  void forward(int stage, int microbatch) {
    const auto& units = placement_.units(stage);
    for (const int unit : units) {
      for (const int value : placement_.inputs(unit)) {
        receive(placement_.writer_pp_coordinate(value), {.value = value, .microbatch = microbatch});
      }
    }
    for (const int unit : units) add({.kind = ActionKind::forward, .unit = unit, .microbatch = microbatch});
    for (const Action& send : placement_.value_sends(stage, microbatch, pp_coordinate_)) add(send);
  }

  void backward(int stage, StageKind kind, int microbatch) {
    const auto& units = placement_.units(stage);
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      if (makes_input_gradients(kind)) receive_gradients(*unit, microbatch);
      add({.kind = unit_kind(kind), .unit = *unit, .microbatch = microbatch});
      if (makes_input_gradients(kind)) {
        for (const Action& send : placement_.gradient_sends(*unit, microbatch, pp_coordinate_)) add(send);
      }
      if (makes_weight_gradients(kind)) reduce_after(*unit);
    }
  }

  void receive_gradients(int unit, int microbatch) {
    for (const int value : placement_.outputs(unit)) {
      if (!placement_.differentiable(value)) continue;
      const auto& consumers = placement_.consumers(value);
      for (auto consumer = consumers.rbegin(); consumer != consumers.rend(); ++consumer) {
        receive(placement_.pp_coordinate_of(*consumer),
                {.value = value, .consumer = *consumer, .microbatch = microbatch});
      }
    }
  }

  void receive(int peer, const Message& wanted) {
    if (peer == pp_coordinate_) return;
    const bool gradient = wanted.is_gradient();
    for (const Message& message : inbox_.up_to({peer, pp_coordinate_, gradient}, wanted)) {
      add({.kind = gradient ? ActionKind::receive_gradient : ActionKind::receive,
           .value = message.value,
           .consumer = message.consumer,
           .peer = peer,
           .microbatch = message.microbatch});
    }
  }

  void reduce_after(int unit) {
    for (std::size_t i = reduced_.size(); i-- > 0;) {
      if (!std::ranges::binary_search(reduced_[i].users, unit)) continue;
      if (--weight_gradients_left_[i] == 0) add({.kind = ActionKind::reduce, .unit = reduced_[i].unit});
    }
  }

  void add(const Action& action) { list_.actions.push_back(action); }

  const std::vector<StageAction>& actions_;
  int pp_coordinate_;
  Placement placement_;
  Inbox inbox_;
  std::vector<ReducedUnit> reduced_;
  std::vector<int> weight_gradients_left_;  // per reduced unit, over its users
  LoweredList list_;
};

}  // namespace

std::vector<Action> lower(const StageTable& table, const StageMap& map, const GraphSpec& graph, int pp_coordinate) {
  return lower_with_origins(table, map, graph, pp_coordinate).actions;
}

LoweredList lower_with_origins(const StageTable& table, const StageMap& map, const GraphSpec& graph,
                               int pp_coordinate) {
  return Lowering(table, map, graph, pp_coordinate).run();
}

std::vector<Action> forward_actions(const GraphSpec& graph) {
  std::vector<Action> actions;
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    actions.push_back({.kind = ActionKind::forward, .unit = u, .microbatch = 0});
  }
  return actions;
}

}  // namespace orthant
