#include "orthant/files/io_patience.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

namespace orthant {
namespace {

constexpr double kLongestPause = 0.25;

// EACCES: servers answer so while credentials are renewed.
constexpr std::array kTransient = {EIO,       ESTALE, EAGAIN,  EINTR,   EMFILE, ENFILE,   ETIMEDOUT, EACCES,
                                   EREMOTEIO, ENOMEM, ENOBUFS, ENOLINK, ECOMM,  ENOTCONN, EBUSY};

}  // namespace

bool is_transient(int error_number) {
  return std::ranges::find(kTransient, error_number) != kTransient.end();
}

bool IoPatience::Pauses::wait() {
  const auto now = std::chrono::steady_clock::now();
  if (!end_)
    end_ =
        now + std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds_));
  const double left = std::chrono::duration<double>(*end_ - now).count();
  if (left <= 0) return false;
  std::this_thread::sleep_for(std::chrono::duration<double>(std::min(next_, left)));
  next_ = std::min(2 * next_, kLongestPause);
  return true;
}

}  // namespace orthant
