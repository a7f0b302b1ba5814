#include "orthant/trace/flight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "orthant/base/error.h"

namespace orthant::trace {
namespace {

constexpr std::uint64_t kMostFlightBytes = std::uint64_t{1} << 30;
constexpr std::int64_t kLatest = std::int64_t{1} << 61;  // a sum of two times has room

bool is_time(std::int64_t ns) {
  return ns >= -kLatest && ns <= kLatest;
}

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw DataError(fmt::format("{}: no record of a rank: {}", path, why),
                  {.remedy = "leave the file out; the other ranks' records can be read without it"});
}

void check_header(const FlightHeader& header, std::uint64_t file_bytes, const std::string& path) {
  if (header.magic != kFlightMagic) refuse(path, "its first bytes are not those of one");
  const bool sound = header.event_bytes == sizeof(Event) && header.header_bytes >= sizeof(FlightHeader) &&
                     header.header_bytes <= (1U << 20) && header.capacity > 0 && header.capacity < (1U << 24) &&
                     header.name_bytes < (1U << 28) && header.names_end <= header.name_bytes && header.rank >= 0 &&
                     header.rank < header.world_size;
  if (!sound) refuse(path, "its sizes make no sense");
  for (const auto ns : {header.wall_ns, header.monotonic_ns, header.clock_offset_ns, header.clock_error_ns,
                        header.seen_ns, header.first_step_ns, header.first_cpu_ns, header.cpu_ns}) {
    if (!is_time(ns)) refuse(path, "its times make no sense");
  }
  if (file_bytes < flight_bytes(header)) {
    refuse(path, fmt::format("it has {} of {} bytes", file_bytes, flight_bytes(header)));
  }
}

}  // namespace

std::string RankRecord::host() const {
  return {header.host, strnlen(header.host, sizeof header.host)};
}

std::string flight_path(const std::string& run, int rank) {
  return fmt::format("{}/flight/rank-{}.events", run, rank);
}

std::string_view name_at(std::string_view names, std::uint32_t place) {
  std::uint32_t length = 0;
  if (place == 0 || place + sizeof length > names.size()) return place == 0 ? "" : "?";
  std::memcpy(&length, names.data() + place, sizeof length);
  if (length > names.size() - place - sizeof length) return "?";
  return names.substr(place + sizeof length, length);
}

RankRecord read_flight_file(const std::string& path) {
  std::error_code error;
  const auto file_bytes = std::filesystem::file_size(path, error);
  if (error) refuse(path, error.message());
  if (file_bytes < sizeof(FlightHeader) || file_bytes > kMostFlightBytes) {
    refuse(path, fmt::format("it has {} bytes", file_bytes));
  }
  std::string bytes(file_bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) refuse(path, "it cannot be read");
  RankRecord record;
  std::memcpy(&record.header, bytes.data(), sizeof(FlightHeader));
  const auto& header = record.header;
  check_header(header, file_bytes, path);
  const std::string_view names(bytes.data() + header.header_bytes, header.name_bytes);
  for (std::uint64_t i = 0; i < header.capacity; ++i) {
    NamedEvent event;
    std::memcpy(static_cast<Event*>(&event), bytes.data() + header.header_bytes + header.name_bytes + i * sizeof(Event),
                sizeof(Event));
    // A place that was being written when the process ended has the number of no event, or of another place.
    const bool whole = event.number > 0 && (event.number - 1) % header.capacity == i && event.begin_ns > 0 &&
                       event.number <= header.num_events && static_cast<int>(event.kind) < kNumEventKinds &&
                       (event.end_ns == 0 || event.end_ns >= event.begin_ns) && is_time(event.begin_ns) &&
                       is_time(event.end_ns);
    if (!whole) continue;
    event.text = name_at(names, event.name);
    event.group_text = name_at(names, event.group);
    event.begin_ns += header.clock_offset_ns;
    if (event.end_ns != 0) event.end_ns += header.clock_offset_ns;
    record.events.push_back(std::move(event));
  }
  std::ranges::sort(record.events, {}, &Event::number);
  return record;
}

std::vector<RankRecord> read_flight(const std::string& run, std::vector<std::string>* complaints) {
  std::vector<RankRecord> records;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run + "/flight", error)) {
    if (entry.path().extension() != ".events") continue;
    try {
      records.push_back(read_flight_file(entry.path().string()));
    } catch (const DataError& damaged) {
      if (complaints != nullptr) complaints->push_back(damaged.message());
    }
  }
  std::ranges::sort(records, {}, [](const RankRecord& record) { return record.header.rank; });
  return records;
}

}  // namespace orthant::trace
