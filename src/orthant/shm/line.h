// A line of operations that run in order, each moved on in small steps by whoever has time: the thread that waits for
// one of them, or the endpoint's progress thread. See Note [Progress] in endpoint.h.
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

namespace orthant::shm {

// A peer is gone, late, or made a call that does not match. `rank` is global.
class PeerFailure : public std::runtime_error {
 public:
  PeerFailure(int rank, const std::string& text) : std::runtime_error(text), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

// One started call. `done` is set last; `error` is readable once it is.
struct Operation {
  virtual ~Operation() = default;

  std::atomic<bool> done = false;
  std::exception_ptr error;

  void finish(std::exception_ptr with = nullptr) {
    error = std::move(with);
    done.store(true, std::memory_order_release);
  }
  bool is_done() const { return done.load(std::memory_order_acquire); }
};

class Line {
 public:
  virtual ~Line() = default;

  // Moves on without waiting, by about one chunk at most. True when anything moved. The caller holds `mutex`.
  virtual bool advance() = 0;

  // True when it has no unfinished operation. The caller holds `mutex`.
  virtual bool idle() const = 0;

  // True when peers can go on without this rank doing anything more. The caller holds `mutex`.
  virtual bool needs_nobody() const = 0;

  // Global ranks that the first operation waits for; may be empty. The caller holds `mutex`.
  virtual std::vector<int> awaited() const = 0;

  // Ends all operations with this error, now and from now on. The caller holds `mutex`.
  virtual void fail(std::exception_ptr error) = 0;

  std::mutex mutex;
  std::atomic<int> num_waiters = 0;                  // threads that move it on themselves; more only under `mutex`
  std::chrono::steady_clock::time_point moved_at{};  // under `mutex`
  std::atomic<double> timeout_seconds = 300;
};

}  // namespace orthant::shm
