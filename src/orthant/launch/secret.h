// Memory for one secret: pages of its own that no core dump contains and no forked process inherits, overwritten before
// they go back. A secret that came by the environment is removed from there.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace orthant::launch {

class Secret {
 public:
  static constexpr std::size_t kMostBytes = 4096;

  // `size` bytes of zeros, at most kMostBytes.
  explicit Secret(std::size_t size);
  ~Secret();
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  // InternalError in a process that was forked after the secret was made: there the pages are empty.
  std::span<std::byte> bytes();
  std::span<const std::byte> bytes() const;
  std::string_view text() const;

  // Forgets the bytes after the first `size`.
  void shorten(std::size_t size);

 private:
  void check_is_here() const;

  std::byte* pages_ = nullptr;
  std::size_t size_ = 0;
};

// From the system's random numbers. ConfigError when there are none; may block while the system is starting.
void fill_random(std::span<std::byte> bytes);

// Moves an environment variable into a secret: afterwards it is neither in this process' environment nor in what
// /proc/PID/environ shows, and no child inherits it. Null when it is unset or empty. A value that is too long is cut.
// To be called before there are threads, or anybody has copied the environment. Local.
std::shared_ptr<const Secret> take_variable(const char* name);

}  // namespace orthant::launch
