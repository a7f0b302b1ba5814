// Messages for people, on stderr and optionally in a file, each line marked with the rank it comes from. A Log is a
// handle that is passed to whoever speaks; copies share one destination, and there is no global one.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace orthant {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

struct LogOptions {
  int rank = -1;  // -1: lines begin with "orthant: " instead of "[rank 3] "
  LogLevel level = LogLevel::kInfo;
  bool color = false;     // of warnings and errors on stderr; files never have colours
  std::string file = {};  // appended to; empty: stderr only
};

// Every method may be called from any thread. A message of several lines gets the mark on each and is written at once.
class Log {
 public:
  // Throws ConfigError when the file cannot be opened.
  explicit Log(const LogOptions& options = {});

  void debug(std::string_view message) const;
  void info(std::string_view message) const;
  void warn(std::string_view message) const;
  void error(std::string_view message) const;

 private:
  struct Sinks;
  std::shared_ptr<const Sinks> sinks_;
};

}  // namespace orthant
