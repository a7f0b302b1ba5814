// The events of one rank as they travel to whoever merges those of all, and what is derived from them alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/trace/event.h"

namespace orthant::trace {

struct RankTrace {
  int rank = 0;
  std::string place;  // "pp 0, dp 1"
  std::int64_t clock_error_ns = 0;
  std::vector<NamedEvent> events;  // in the order in which they began, outer ones first; times of rank 0's clock
};

// Texts once each, then the events.
std::string packed(const RankTrace& trace);
RankTrace unpacked(std::string_view bytes);

// Of each event the time that no event inside of it takes, in seconds. Events of one row lie inside one another or
// apart.
std::vector<double> own_seconds(const std::vector<NamedEvent>& events);

// Of each event the one around it, -1 for none.
std::vector<int> parents(const std::vector<NamedEvent>& events);

// Of a rank's events those of steps: actions, calls and waits of evaluations and saves, which lie outside of the
// trainer's work, are left out. Phases stay.
std::vector<NamedEvent> of_steps(const std::vector<NamedEvent>& events);

// Which call of which ranks: equal for the start and the wait on all members of a group, or on both ends of a message.
std::string call_key(const NamedEvent& event, int rank);
bool is_message(const NamedEvent& event);  // a send or receive

}  // namespace orthant::trace
