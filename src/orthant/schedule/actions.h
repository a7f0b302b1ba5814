// What the executor runs: actions of units and of the values between them, one list per rank. The executor runs a list
// in order, the validator (list_run.h) runs the lists of all pp coordinates without computing, and the planner walks a
// list to count bytes and calls; the simulator knows stage tables only. A send does not block, a receive blocks until
// its value is there. Messages of a channel (a directed pair of pp coordinates and a purpose: activations or gradients)
// arrive in the order in which they were sent.
#pragma once

#include <string>
#include <string_view>

#include "orthant/graph/spec.h"

namespace orthant {

enum class ActionKind {
  forward,           // unit, microbatch
  backward,          // unit, microbatch: gradients of the inputs and the weights
  backward_input,    // unit, microbatch: gradients of the inputs only
  backward_weight,   // unit, microbatch: gradients of the weights, after its backward_input
  gather,            // unit: its parameters become full
  free,              // unit: only its shard stays
  reduce,            // unit, microbatch: its gradients are complete here; see Action::microbatch
  send,              // value, microbatch, peer: the value goes to a pp coordinate that reads it
  receive,           // value, microbatch, peer: its counterpart
  send_gradient,     // value, consumer, microbatch, peer: that consumer's gradient goes to where the value was made
  receive_gradient,  // value, consumer, microbatch, peer: its counterpart
};

struct Action {
  ActionKind kind = ActionKind::forward;
  int unit = -1;      // index into GraphSpec::units
  int value = -1;     // index into GraphSpec::values
  int consumer = -1;  // the unit whose gradient travels
  int peer = -1;      // pp coordinate
  // -1 for gather and free. reduce: -1 once a step, when the gradients of all microbatches are complete; otherwise that
  // microbatch's part of them is (microbatch_reductions.h).
  int microbatch = -1;
  friend bool operator==(const Action&, const Action&) = default;
};

// "F", "BW", "B", "W", "gather", "send_gradient", ...
std::string_view action_name(ActionKind kind);

// "F layers.3 m2", "send hidden.4 m2 -> 1", "receive_gradient hidden.4 of layers.5 m2 <- 1", "reduce layers.3",
// "reduce layers.3 m2".
std::string to_string(const Action& action, const GraphSpec& graph);

}  // namespace orthant
