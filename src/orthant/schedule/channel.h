// What travels between two pp coordinates, and where. Lowering keeps a receiver to its sender's order with these, and
// the validator runs them as queues.
#pragma once

#include <compare>
#include <cstddef>

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

// Of a send or receive in the list of a pp coordinate.
inline Channel channel_of(const Action& action, int pp) {
  const bool out = action.kind == ActionKind::send || action.kind == ActionKind::send_gradient;
  return {.from = out ? pp : action.peer, .to = out ? action.peer : pp, .gradients = action.consumer >= 0};
}

// Receives that are posted on a channel at any time: see Note [Receiving early] in parallel/pipeline/stage_links.h.
inline constexpr std::size_t kPostedAhead = 2;

}  // namespace orthant
