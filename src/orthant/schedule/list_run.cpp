#include "orthant/schedule/list_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <utility>

#include "orthant/schedule/channel.h"

namespace orthant {
namespace {

// What has been done for one microbatch of one unit.
struct Done {
  bool forward = false;
  bool inputs = false;
  bool weights = false;
};

// A message under way and the send it came from.
struct Parcel {
  Message message;
  ActionPlace sent;
};

class ListRun {
 public:
  ListRun(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches,
          const ShowPlaces& show)
      : lists_(lists),
        graph_(graph),
        microbatches_(microbatches),
        places_(lists, graph, microbatches, show),
        edges_(places_.edges()),
        done_(graph.units.size() * static_cast<std::size_t>(microbatches)),
        num_weights_(graph.units.size(), 0),
        next_(lists.size(), 0),
        arrived_(lists.size()) {}

  void run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int pp_coordinate = 0; pp_coordinate < static_cast<int>(lists_.size()); ++pp_coordinate) {
        while (unfinished(pp_coordinate) && step({pp_coordinate, static_cast<int>(next(pp_coordinate))})) {
          ++next(pp_coordinate);
          moved = true;
        }
      }
    }
    for (int pp_coordinate = 0; pp_coordinate < static_cast<int>(lists_.size()); ++pp_coordinate) {
      if (unfinished(pp_coordinate)) refuse_blocked(pp_coordinate);
    }
    check_complete();
  }

 private:
  std::size_t& next(int pp_coordinate) { return next_[static_cast<std::size_t>(pp_coordinate)]; }
  bool unfinished(int pp_coordinate) {
    return next(pp_coordinate) < lists_[static_cast<std::size_t>(pp_coordinate)].size();
  }
  int pp_coordinate_of(int unit) const { return places_.pp_coordinate_of(unit); }
  int producer(int value) const { return edges_.producer[static_cast<std::size_t>(value)]; }
  const std::vector<int>& consumers(int value) const { return edges_.consumers[static_cast<std::size_t>(value)]; }
  bool differentiable(int value) const { return graph_.values[static_cast<std::size_t>(value)].differentiable; }
  bool has_arrived(int pp_coordinate, const Message& message) const {
    return arrived_[static_cast<std::size_t>(pp_coordinate)].contains(message);
  }
  const std::string& unit_name(int unit) const { return graph_.units[static_cast<std::size_t>(unit)].name; }
  const std::string& value_name(int value) const { return graph_.values[static_cast<std::size_t>(value)].name; }

  Done& done(int unit, int microbatch) {
    return done_[static_cast<std::size_t>(unit) * static_cast<std::size_t>(microbatches_) +
                 static_cast<std::size_t>(microbatch)];
  }

  // Runs one action; false while it waits for a message.
  bool step(ActionPlace place) {
    const Action& action = places_.at(place);
    switch (action.kind) {
      case ActionKind::forward:
        forward(action, place);
        return true;
      case ActionKind::backward:
      case ActionKind::backward_input:
      case ActionKind::backward_weight:
        backward(action, place);
        return true;
      case ActionKind::reduce:
        reduce(action, place);
        return true;
      case ActionKind::send:
      case ActionKind::send_gradient:
        send(action, place);
        return true;
      case ActionKind::receive:
      case ActionKind::receive_gradient:
        return receive(action, place);
      case ActionKind::gather:
      case ActionKind::free:
        return true;
    }
    return true;
  }

  void forward(const Action& action, ActionPlace place) {
    Done& state = done(action.unit, action.microbatch);
    if (state.forward) refuse(place, "runs a second time", "keep one of the two");
    for (const int value : edges_.inputs[static_cast<std::size_t>(action.unit)]) {
      const int writer = producer(value);
      const bool local = pp_coordinate_of(writer) == place.pp_coordinate;
      if (local ? done(writer, action.microbatch).forward
                : has_arrived(place.pp_coordinate, {.value = value, .microbatch = action.microbatch})) {
        continue;
      }
      refuse(place, fmt::format("reads {}, which is not there yet", value_name(value)),
             local ? fmt::format("put it after F {} m{}", unit_name(writer), action.microbatch)
                   : fmt::format("receive {} m{} before it", value_name(value), action.microbatch));
    }
    state.forward = true;
  }

  void backward(const Action& action, ActionPlace place) {
    Done& state = done(action.unit, action.microbatch);
    if (action.kind == ActionKind::backward_weight) {
      if (!state.inputs) refuse(place, "comes before its B", "put it after");
    } else {
      if (!state.forward) refuse(place, "comes before its F", "put it after");
      if (state.inputs) refuse(place, "is a second backward of that microbatch", "keep one of the two");
      need_gradients(action, place);
      state.inputs = true;
    }
    if (action.kind == ActionKind::backward_input) return;
    if (state.weights) refuse(place, "is a second weight gradient of that microbatch", "keep one of the two");
    state.weights = true;
    int& count = num_weights_[static_cast<std::size_t>(action.unit)];
    if (action.microbatch != count) {
      refuse(place, fmt::format("comes before the weight gradient of microbatch {}", count),
             "add the weight gradients of a unit in microbatch order");
    }
    ++count;
  }

  void need_gradients(const Action& action, ActionPlace place) {
    for (const int value : edges_.outputs[static_cast<std::size_t>(action.unit)]) {
      if (!differentiable(value)) continue;
      for (const int consumer : consumers(value)) {
        const bool local = pp_coordinate_of(consumer) == place.pp_coordinate;
        if (local ? done(consumer, action.microbatch).inputs
                  : has_arrived(place.pp_coordinate, {value, consumer, action.microbatch})) {
          continue;
        }
        refuse(place,
               fmt::format("needs the gradient of {} from {}, which is not there yet", value_name(value),
                           unit_name(consumer)),
               local ? fmt::format("put it after the backward of {} m{}", unit_name(consumer), action.microbatch)
                     : fmt::format("receive that gradient of m{} before it", action.microbatch));
      }
    }
  }

  void reduce(const Action& action, ActionPlace place) {
    const std::vector<ReducedUnit> due = places_.reduced(place.pp_coordinate);
    const auto found =
        std::ranges::find_if(due, [&](const ReducedUnit& reduced) { return reduced.unit == action.unit; });
    if (found == due.end()) {
      refuse(place, "names a unit that holds no trainable parameter on this pp coordinate", "leave it out");
    }
    for (const int user : found->users) {
      const int count = num_weights_[static_cast<std::size_t>(user)];
      if (count == microbatches_) continue;
      refuse(place,
             fmt::format("comes after {} of the {} weight gradients of {}", count, microbatches_, unit_name(user)),
             "put it after the last of them");
    }
    if (!reduced_.insert({place.pp_coordinate, action.unit}).second)
      refuse(place, "runs a second time", "keep one of the two");
  }

  void send(const Action& action, ActionPlace place) {
    const Message message = message_of(action);
    const bool gradient = action.kind == ActionKind::send_gradient;
    const int maker = gradient ? action.consumer : producer(action.value);
    const Done& state = done(maker, action.microbatch);
    if (pp_coordinate_of(maker) != place.pp_coordinate || !(gradient ? state.inputs : state.forward)) {
      refuse(place, fmt::format("comes before {} has made it on this pp coordinate", unit_name(maker)), "put it after");
    }
    const auto reads = [&](int consumer) { return pp_coordinate_of(consumer) == action.peer; };
    const bool wanted = gradient
                            ? pp_coordinate_of(producer(action.value)) == action.peer && differentiable(action.value)
                            : std::ranges::any_of(consumers(action.value), reads);
    if (!wanted) refuse(place, fmt::format("sends what pp {} has no use for", action.peer), "leave it out");
    if (!sent_.insert({action.peer, message}).second) refuse(place, "runs a second time", "keep one of the two");
    channels_[{place.pp_coordinate, action.peer, gradient}].push_back({message, place});
  }

  bool receive(const Action& action, ActionPlace place) {
    auto& channel = channels_[{action.peer, place.pp_coordinate, action.kind == ActionKind::receive_gradient}];
    if (channel.empty()) return false;
    const Parcel parcel = channel.front();
    if (parcel.message != message_of(action)) {
      refuse(place, fmt::format("finds \"{}\" first in its channel", places_.text(parcel.sent)),
             "receive in the order in which the peer sends");
    }
    channel.pop_front();
    arrived_[static_cast<std::size_t>(place.pp_coordinate)].insert(parcel.message);
    return true;
  }

  // Follows who waits for whom from a blocked pp coordinate, to a cycle or to a pp coordinate that is done.
  [[noreturn]] void refuse_blocked(int pp_coordinate) {
    std::vector<ActionPlace> path;
    const auto seen = [&](int wanted) {
      return std::ranges::find_if(path, [&](const ActionPlace& place) { return place.pp_coordinate == wanted; });
    };
    while (seen(pp_coordinate) == path.end()) {
      const ActionPlace place{pp_coordinate, static_cast<int>(next(pp_coordinate))};
      if (!unfinished(pp_coordinate)) {
        refuse(path.back(), fmt::format("waits for what pp {} never sends", pp_coordinate),
               fmt::format("add the send to pp {}", pp_coordinate));
      }
      path.push_back(place);
      pp_coordinate = places_.at(place).peer;
    }
    path.erase(path.begin(), seen(pp_coordinate));
    places_.refuse_cycle(path);
  }

  // All that had to run has run. So every message was taken: each is sent once, to a pp coordinate that cannot do
  // without it.
  void check_complete() {
    for (int unit = 0; unit < edges_.num_units(); ++unit) {
      for (int microbatch = 0; microbatch < microbatches_; ++microbatch) {
        const Done& state = done(unit, microbatch);
        need(state.forward, ActionKind::forward, unit, microbatch);
        if (places_.forward_only()) continue;
        need(state.inputs, ActionKind::backward, unit, microbatch);
        need(state.weights, ActionKind::backward_weight, unit, microbatch);
      }
    }
    for (int pp_coordinate = 0; pp_coordinate < static_cast<int>(lists_.size()) && !places_.forward_only();
         ++pp_coordinate) {
      for (const ReducedUnit& reduced : places_.reduced(pp_coordinate)) {
        if (!reduced_.contains({pp_coordinate, reduced.unit})) {
          places_.refuse_missing({.kind = ActionKind::reduce, .unit = reduced.unit}, pp_coordinate);
        }
      }
    }
  }

  void need(bool has_run, ActionKind kind, int unit, int microbatch) const {
    if (!has_run)
      places_.refuse_missing({.kind = kind, .unit = unit, .microbatch = microbatch}, pp_coordinate_of(unit));
  }

  [[noreturn]] void refuse(ActionPlace place, const std::string& why, const std::string& remedy) const {
    places_.refuse(place, why, remedy);
  }

  const std::vector<std::vector<Action>>& lists_;
  const GraphSpec& graph_;
  int microbatches_;
  ListPlaces places_;
  const GraphEdges& edges_;
  std::vector<Done> done_;                  // per unit and microbatch
  std::vector<int> num_weights_;            // per unit: weight gradients so far
  std::vector<std::size_t> next_;           // per pp coordinate
  std::vector<std::set<Message>> arrived_;  // per pp coordinate
  std::set<std::pair<int, Message>> sent_;  // by peer; a message has one maker
  std::set<std::pair<int, int>> reduced_;   // pp coordinate, unit
  std::map<Channel, std::deque<Parcel>> channels_;
};

}  // namespace

void run_lists(const std::vector<std::vector<Action>>& lists, const GraphSpec& graph, int microbatches,
               const ShowPlaces& show) {
  ListRun(lists, graph, microbatches, show).run();
}

}  // namespace orthant
