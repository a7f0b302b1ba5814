#include "orthant/trace/recorder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "orthant/base/error.h"
#include "orthant/files/beneath.h"

namespace orthant::trace {
namespace {

std::atomic<std::uint16_t> threads_seen = 0;
thread_local const std::uint16_t own_row = threads_seen++;

std::shared_ptr<void> map_record(int fd, std::size_t num_bytes) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
  if (memory == MAP_FAILED) return nullptr;
  return {memory, [num_bytes](void* mapped) { munmap(mapped, num_bytes); }};
}

// In clock ticks since boot, as the system counts them; 0 when it does not say.
std::int64_t own_start() {
  std::ifstream file("/proc/self/stat");
  std::string line;
  std::getline(file, line);
  const auto name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return 0;
  std::int64_t started = 0;
  std::size_t at = name_ends + 2;
  constexpr int kFieldsBefore = 19;  // after the name
  for (int i = 0; i < kFieldsBefore && at != std::string::npos; ++i) at = line.find(' ', at + 1);
  if (at != std::string::npos) started = std::strtoll(line.c_str() + at, nullptr, 10);
  return started;
}

}  // namespace

Recorder::Recorder(int rank, int world_size) {
  FlightHeader header;
  header.rank = rank;
  header.world_size = world_size;
  header.process = getpid();
  header.process_started = own_start();
  header.wall_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  header.monotonic_ns = now_ns();
  header.names_end = sizeof(std::uint32_t);  // place 0 is no name
  gethostname(header.host, sizeof header.host - 1);
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof cores, &cores) == 0) header.cores = CPU_COUNT(&cores);
  if (rank == 0) header.clock_error_ns = 0;
  memory_ = map_record(-1, flight_bytes(header));
  if (memory_ == nullptr) {
    throw DataError(fmt::format("no memory for the record of rank {}: {}", rank, std::strerror(errno)),
                    {.remedy = "raise ulimit -v, or free memory", .rank = rank});
  }
  std::memcpy(memory_.get(), &header, sizeof header);
}

char* Recorder::names() const {
  return static_cast<char*>(memory_.get()) + header().header_bytes;
}

Event* Recorder::place_of(std::uint64_t number) const {
  return reinterpret_cast<Event*>(names() + header().name_bytes) + (number - 1) % kFlightCapacity;
}

void Recorder::keep_in(const std::string& run) {
  const auto path = flight_path(run, rank());
  const auto num_bytes = flight_bytes(header());
  make_folder_beneath(run, "flight");
  std::error_code none_before;
  std::filesystem::rename(path, path + ".previous", none_before);
  const auto refused = [&](int number) {
    unlink(path.c_str());
    throw IoError(fmt::format("cannot keep the last events in {}: {}", path, std::strerror(number)), number,
                  {.remedy = fmt::format("free {} bytes on that disk", num_bytes), .rank = rank()});
  };
  const auto file = open_beneath(run, fmt::format("flight/rank-{}.events", rank()), O_RDWR | O_CREAT | O_EXCL);
  // All of it at once: a page that finds no room later would end the process.
  if (const int number = posix_fallocate(file.fd(), 0, static_cast<off_t>(num_bytes)); number != 0) refused(number);
  auto memory = map_record(file.fd(), num_bytes);
  if (memory == nullptr) refused(errno);
  std::memcpy(memory.get(), memory_.get(), num_bytes);
  memory_ = std::move(memory);
}

std::uint32_t Recorder::name(std::string_view text) {
  std::lock_guard lock(names_mutex_);
  if (const auto found = name_places_.find(text); found != name_places_.end()) return found->second;
  const auto length = static_cast<std::uint32_t>(text.size());
  const auto place = header().names_end;
  if (text.empty() || place + sizeof length + length > kNameBytes) return 0;
  std::memcpy(names() + place, &length, sizeof length);
  std::memcpy(names() + place + sizeof length, text.data(), length);
  header().names_end = place + sizeof length + length;
  return name_places_.emplace(text, static_cast<std::uint32_t>(place)).first->second;
}

std::string Recorder::text_of(std::uint32_t name) const {
  return std::string(name_at({names(), header().name_bytes}, name));
}

void Recorder::begin_step(std::int64_t step) noexcept {
  step_.store(static_cast<std::int32_t>(step), std::memory_order_relaxed);
  header().step = static_cast<std::int32_t>(step);
  header().seen_ns = now_ns();
  timespec on_core = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &on_core);
  header().cpu_ns = on_core.tv_sec * 1'000'000'000LL + on_core.tv_nsec;
  if (header().first_step_ns != 0) return;
  header().first_step_ns = header().seen_ns;
  header().first_cpu_ns = header().cpu_ns;
}

void Recorder::ended(RankEnd end) noexcept {
  header().end = static_cast<std::uint32_t>(end);
}

void Recorder::set_clock(std::int64_t offset_ns, std::int64_t error_ns) noexcept {
  header().clock_offset_ns = offset_ns;
  header().clock_error_ns = error_ns;
}

std::uint64_t Recorder::num_events() const {
  return header().num_events;
}

// Operations are captured and not kept: they would push out what a diagnosis needs.
Event* Recorder::write(Event& event) noexcept {
  event.step = step_.load(std::memory_order_relaxed);
  event.row = own_row;
  event.begin_ns = now_ns();
  if (event.kind == EventKind::operation) return nullptr;
  event.number = std::atomic_ref(header().num_events).fetch_add(1, std::memory_order_relaxed) + 1;
  Event* const place = place_of(event.number);
  const std::atomic_ref number(place->number);
  number.store(0, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  Event unnumbered = event;
  unnumbered.number = 0;
  *place = unnumbered;
  number.store(event.number, std::memory_order_release);
  return place;
}

void Recorder::finish(const Event& event, Event* place) noexcept {
  if (event.kind == EventKind::wait) waited_ns_.fetch_add(event.end_ns - event.begin_ns, std::memory_order_relaxed);
  if (place != nullptr && std::atomic_ref(place->number).load(std::memory_order_relaxed) == event.number) {
    place->bytes = event.bytes;
    place->failed = event.failed;
    place->end_ns = event.end_ns;
  }
  if (auto* capture = capture_.load(std::memory_order_acquire)) capture->add(event);
}

Span::Span(Recorder* recorder, Event what) noexcept
    : recorder_(recorder), event_(what), exceptions_(std::uncaught_exceptions()) {
  if (recorder_ != nullptr) place_ = recorder_->write(event_);
}

Span::~Span() {
  if (recorder_ == nullptr) return;
  event_.failed = std::uncaught_exceptions() > exceptions_ ? 1 : 0;
  event_.end_ns = now_ns();
  recorder_->finish(event_, place_);
}

Event phase(Recorder* recorder, std::string_view name) {
  Event event;
  event.kind = EventKind::phase;
  if (recorder != nullptr) event.name = recorder->name(name);
  return event;
}

Capture::Capture(Recorder& recorder, Of depth) : recorder_(recorder) {
  Capture* none = nullptr;
  if (!recorder_.capture_.compare_exchange_strong(none, this)) {
    throw ConfigError("a profile of a rank that is being profiled",
                      {.remedy = "end the first profile before the next begins", .rank = recorder.rank()});
  }
  recorder_.captures_operations_.store(depth == Of::operations);
}

Capture::~Capture() {
  recorder_.captures_operations_.store(false);
  recorder_.capture_.store(nullptr);
}

void Capture::add(const Event& event) {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

std::vector<NamedEvent> Capture::events() const {
  std::lock_guard lock(mutex_);
  // They were added as they ended: of two that begin together the one that was added later is around the other.
  std::vector<std::size_t> order(events_.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return events_[a].begin_ns != events_[b].begin_ns ? events_[a].begin_ns < events_[b].begin_ns : a > b;
  });
  std::vector<NamedEvent> named;
  for (const auto i : order) {
    auto& one = named.emplace_back();
    static_cast<Event&>(one) = events_[i];
    one.text = recorder_.text_of(one.name);
    one.group_text = recorder_.text_of(one.group);
  }
  return named;
}

}  // namespace orthant::trace
