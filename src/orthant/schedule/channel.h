// What travels between two ranks, and where. Lowering keeps a receiver to its sender's order with these, and the
// validator runs them as queues.
#pragma once

#include <compare>

#include "orthant/schedule/actions.h"

namespace orthant {

// A value of one microbatch, or, with a consumer, that unit's gradient of it.
struct Message {
  int value = -1;
  int consumer = -1;
  int microbatch = -1;

  bool is_gradient() const { return consumer >= 0; }
  friend auto operator<=>(const Message&, const Message&) = default;
};

inline Message message_of(const Action& action) {
  return {action.value, action.consumer, action.microbatch};
}

// First in first out within itself, independent of the others.
struct Channel {
  int from = -1;
  int to = -1;
  bool gradients = false;
  friend auto operator<=>(const Channel&, const Channel&) = default;
};

}  // namespace orthant
