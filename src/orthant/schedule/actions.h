// What the executor runs: actions of units and of the values between them. A rank's list is read in order by the
// validator, the simulator and the executor alike. Sends are buffered, receives block; a channel is a directed pair of
// pp coordinates and a purpose (activations or gradients), first in first out within itself.
#pragma once

#include <string>
#include <string_view>

#include "orthant/graph/spec.h"

namespace orthant {

enum class ActionKind {
  forward,          // unit, microbatch
  backward,         // unit, microbatch: gradients of the inputs and the weights
  backward_input,   // unit, microbatch: gradients of the inputs only
  backward_weight,  // unit, microbatch: gradients of the weights, after its backward_input
  gather,           // unit: its parameters become full
  free,             // unit: only its shard stays
  reduce,           // unit, microbatch: its gradients are complete on this rank; see Action::microbatch
  send,             // value, microbatch, peer: the value goes to a rank that reads it
  receive,          // value, microbatch, peer: its counterpart
  send_gradient,    // value, consumer, microbatch, peer: that consumer's gradient goes to the rank that wrote the value
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
