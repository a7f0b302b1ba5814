// The flight recorder of a rank: its last 10,240 events in a ring, in memory at first and in a mapped file of the
// run's folder once that is known. Recording takes no lock and no allocation. A capture, while it lives, collects all
// events, those of single operations included. See Note [Ring of events].
//
// Note [Ring of events]: the place of event n is (n - 1) % capacity. A writer takes the next number, fills the place
// and stores the number last, so that a reader knows what is whole. When the event ends its place gets the end, unless
// a newer event has taken it. Several threads may record at once.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/trace/event.h"
#include "orthant/trace/flight_file.h"

namespace orthant::trace {

class Capture;

class Recorder {
 public:
  Recorder(int rank, int world_size);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  // From now on the events lie in RUN/flight/rank-R.events, those so far included; an earlier file of that rank is
  // kept as .previous. IoError when the system gives no room; the recorder goes on in memory then. Not while another
  // thread records. Local.
  void keep_in(const std::string& run);

  // The number of a text: the same for equal texts, 0 when there is no more room for names. Takes a lock: for texts
  // that come again every step, ask once. Local.
  std::uint32_t name(std::string_view text);
  std::string text_of(std::uint32_t name) const;

  // Events that begin from now on are of this step. Local.
  void begin_step(std::int64_t step) noexcept;
  // What a rank that ends says of itself. Local.
  void ended(RankEnd end) noexcept;
  void set_threads(int threads) noexcept { header().threads = threads; }
  void set_clock(std::int64_t offset_ns, std::int64_t error_ns) noexcept;

  int rank() const { return header().rank; }
  std::uint64_t num_events() const;
  // Of all waits for other ranks that have ended.
  std::int64_t waited_ns() const noexcept { return waited_ns_.load(std::memory_order_relaxed); }
  bool captures_operations() const noexcept { return captures_operations_.load(std::memory_order_acquire); }

 private:
  friend class Span;
  friend class Capture;

  const FlightHeader& header() const { return *static_cast<const FlightHeader*>(memory_.get()); }
  FlightHeader& header() { return *static_cast<FlightHeader*>(memory_.get()); }
  char* names() const;
  Event* place_of(std::uint64_t number) const;
  Event* write(Event& event) noexcept;
  void finish(const Event& event, Event* place) noexcept;

  std::shared_ptr<void> memory_;  // header, names, ring
  std::mutex names_mutex_;
  std::map<std::string, std::uint32_t, std::less<>> name_places_;
  std::atomic<std::int32_t> step_ = 0;
  std::atomic<Capture*> capture_ = nullptr;
  std::atomic<bool> captures_operations_ = false;
  std::atomic<std::int64_t> waited_ns_ = 0;
};

// An event from its making to its destruction; one that ends because of an exception is marked as failed. A null
// recorder records nothing.
class Span {
 public:
  Span(Recorder* recorder, Event what) noexcept;
  ~Span();
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  void set_bytes(std::int64_t bytes) noexcept { event_.bytes = bytes; }

 private:
  Recorder* recorder_;
  Event event_;
  Event* place_ = nullptr;
  int exceptions_;
};

// A span of the loop by its name, which is looked up.
Event phase(Recorder* recorder, std::string_view name);

// All events of a recorder while it lives; at most one at a time.
class Capture {
 public:
  enum class Of { actions, operations };  // single operations are recorded when somebody asks for them
  explicit Capture(Recorder& recorder, Of depth = Of::operations);
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Those that have ended, with their texts, in the order in which they began: outer ones before inner ones. Times of
  // this rank's clock.
  std::vector<NamedEvent> events() const;

 private:
  friend class Recorder;
  void add(const Event& event);

  Recorder& recorder_;
  mutable std::mutex mutex_;
  std::vector<Event> events_;
};

}  // namespace orthant::trace
