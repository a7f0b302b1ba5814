// What a rank did, and when: the one event that the flight recorder, the profile, the trace and the diagnosis are made
// of. Plain data, so that it lies in a file as it lies in memory; see docs/profile.md for the file.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

namespace orthant::trace {

enum class EventKind : std::uint8_t {
  phase,      // a part of the loop: "step", "data", "update", "report", "save", "evaluation"
  action,     // an entry of the step's list
  operation,  // one operation of a unit's program
  exchange,   // the start of a call on a group of ranks
  wait,       // waiting for such a call to end
};
inline constexpr int kNumEventKinds = 5;
const char* name_of(EventKind kind);

// Of an action: which. As ActionKind of schedule/actions.h counts, which is above this layer.
using ActionNumber = std::int16_t;

struct Event {
  std::int64_t begin_ns = 0;   // of the rank's monotonic clock
  std::int64_t end_ns = 0;     // 0: under way
  std::int64_t bytes = 0;      // exchange, wait: payload. operation: read. action: held in tensors at its end
  double flops = 0;            // operation
  std::uint64_t number = 0;    // of the rank's events, from 1; 0: an empty place
  std::uint32_t sequence = 0;  // exchange, wait: of the call, on its line of calls
  std::uint32_t name = 0;      // where the text lies among the names; 0: none
  std::uint32_t group = 0;     // exchange, wait: likewise
  std::int32_t peer = -1;      // exchange, wait: the other end of a message, or the root: a global rank
  std::int32_t step = 0;
  std::int16_t unit = -1;
  std::int16_t stage = -1;
  std::int16_t microbatch = -1;
  std::int16_t tag = 0;  // exchange, wait: of a message. action: its ActionNumber
  EventKind kind = EventKind::phase;
  std::uint8_t failed = 0;  // it ended with an error
  std::uint16_t row = 0;    // the thread
};
static_assert(sizeof(Event) == 72 && std::is_trivially_copyable_v<Event>, "it is written to files as it is");

// The same event with its texts, for readers.
struct NamedEvent : Event {
  std::string text;
  std::string group_text;  // "tp/activations@0 0,1": channel, first rank, all ranks

  bool is_open() const { return end_ns == 0; }
  double seconds() const { return is_open() ? 0 : static_cast<double>(end_ns - begin_ns) * 1e-9; }
};

// Of the monotonic clock, which all processes of a host share unless a time namespace shifts it.
std::int64_t now_ns();

}  // namespace orthant::trace
