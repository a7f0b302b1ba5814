// What a file system refuses now it may grant in a moment: a server that is restarted, a table of open files that is
// full, a lease that is renewed. Such operations are tried again for some seconds before their error counts.
#pragma once

#include <chrono>
#include <optional>

#include "orthant/base/error.h"

namespace orthant {

// Whether the same call may go well a little later: EIO, ESTALE, EAGAIN, EMFILE, ENFILE, ETIMEDOUT, EACCES, ...
bool is_transient(int error_number);

// How long one operation is tried in all, from its first failure on, pauses and further attempts included. 0: once.
class IoPatience {
 public:
  static constexpr double kDefaultSeconds = 3;

  explicit IoPatience(double seconds = kDefaultSeconds) : seconds_(seconds) {}

  double seconds() const { return seconds_; }

  // Calls `act` until it throws no transient IoError. It must be one that can be done again. Blocks for as long.
  template <typename Act>
  auto retry(const Act& act) const {
    for (Pauses pauses(seconds_);;) {
      try {
        return act();
      } catch (const IoError& error) {
        if (!is_transient(error.error_number()) || !pauses.wait()) throw;
      }
    }
  }

 private:
  // Pauses that grow from 10 ms to 250 ms.
  class Pauses {
   public:
    explicit Pauses(double seconds) : seconds_(seconds) {}
    bool wait();  // false when the time is spent; it runs from the first call on

   private:
    double seconds_;
    double next_ = 0.01;
    std::optional<std::chrono::steady_clock::time_point> end_;
  };

  double seconds_;
};

}  // namespace orthant
