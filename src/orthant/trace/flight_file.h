// The file of a rank's last events: RUN/flight/rank-R.events. Its pages are the recorder's memory, so that it is
// complete up to the last event when the process is killed. docs/profile.md says what lies where; another layout takes
// another magic number.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/trace/event.h"

namespace orthant::trace {

inline constexpr std::uint64_t kFlightMagic = 0x3154484749465241;  // "ARFIGHT1" in memory
inline constexpr std::uint64_t kFlightCapacity = 10240;            // events
inline constexpr std::uint64_t kNameBytes = std::uint64_t{256} << 10;

// How the rank ended, as far as it could say: a rank that was killed says `running` for ever.
enum class RankEnd : std::uint32_t { running, done, stopped, failed };

// At the beginning of the file, in the machine's byte order.
struct FlightHeader {
  std::uint64_t magic = kFlightMagic;
  std::uint32_t header_bytes = 4096;
  std::uint32_t event_bytes = sizeof(Event);
  std::uint64_t capacity = kFlightCapacity;
  std::uint64_t name_bytes = kNameBytes;
  std::int32_t rank = 0;
  std::int32_t world_size = 1;
  std::int64_t process = 0;          // its id
  std::int64_t process_started = 0;  // of /proc/PID/stat, in clock ticks since boot
  std::int64_t wall_ns = 0;          // of the calendar clock, at the moment ...
  std::int64_t monotonic_ns = 0;     // ... of the monotonic clock, when the recorder was made
  // To be added to this rank's times for those of rank 0, and how far off they may be. Error -1: not known.
  std::int64_t clock_offset_ns = 0;
  std::int64_t clock_error_ns = -1;
  std::uint64_t num_events = 0;  // so far, those included that are overwritten
  std::uint64_t names_end = 0;   // bytes used among the names
  std::uint32_t end = 0;         // a RankEnd
  std::int32_t step = 0;         // the last that began
  std::int64_t seen_ns = 0;      // when a step last began
  char host[64] = {};
  std::int32_t threads = 0;        // that compute, of this rank; 0: not known
  std::int32_t cores = 0;          // that this process may use
  std::int64_t first_step_ns = 0;  // when the first step began, and the time that the rank's main thread ...
  std::int64_t first_cpu_ns = 0;   // ... had then been on a core
  std::int64_t cpu_ns = 0;         // likewise at seen_ns
};
static_assert(sizeof(FlightHeader) <= 4096);

inline constexpr std::uint64_t flight_bytes(const FlightHeader& header) {
  return header.header_bytes + header.name_bytes + header.capacity * header.event_bytes;
}

// What a file says.
struct RankRecord {
  FlightHeader header;
  std::vector<NamedEvent> events;  // in the order in which they began; times of rank 0's clock

  RankEnd end() const { return static_cast<RankEnd>(header.end); }
  std::string host() const;
};

// DataError for what is no such file, or a damaged one; an event that was being written is left out. Local.
RankRecord read_flight_file(const std::string& path);

// Of every rank in RUN/flight, by rank; empty when the run has none. What is damaged is left out and said in
// `complaints`.
std::vector<RankRecord> read_flight(const std::string& run, std::vector<std::string>* complaints = nullptr);

// RUN/flight/rank-R.events
std::string flight_path(const std::string& run, int rank);

// The text at a place among the names; "?" for a place that is none.
std::string_view name_at(std::string_view names, std::uint32_t place);

}  // namespace orthant::trace
