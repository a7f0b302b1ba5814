// The process that serves the page of a run beside it, and where it listens. See Note [Beside the run].
//
// Note [Beside the run]: a run must not feel who looks at it. The page is made by a process of its own, which only
// reads the run's folder, is served last by the system (nice 10) and killed first where memory ends; it is nobody's
// child, so that a launcher's only children are ranks. It lives for as long as the process that started it, or a rank
// forked by that, holds the other end of a pipe.
#pragma once

#include <optional>
#include <string>

#include "orthant/http/access.h"
#include "orthant/launch/job.h"
#include "orthant/launch/sockets.h"

namespace orthant::cli {

class OptionParser;

inline constexpr int kWatchPort = 8400;

struct WatchPlace {
  std::string host = "127.0.0.1";
  int port = kWatchPort;  // 0: any free one
  std::string key_file;
};

// ConfigError when the port is taken.
launch::Fd listen_at(const WatchPlace& place);
// "http://127.0.0.1:8400/"
std::string address_of(const WatchPlace& place, const launch::Fd& listener);

// Whether and where a run that is trained is served while it goes on.
struct WatchOptions {
  bool page = false;
  int metrics_port = -1;  // -1: not asked for
  WatchPlace place;
  http::AccessRules access = {};  // by check_watch_options()

  bool asked() const { return page || metrics_port >= 0; }
};

void add_watch_options(OptionParser& app, WatchOptions& options);
// Who may read the run. ConfigError where options make no sense. Call it when they are parsed.
void check_watch_options(const OptionParser& app, WatchOptions& options);

class RunWatcher {
 public:
  // Of the run in that folder, which need not be there yet. Call it before the process has threads.
  RunWatcher(const std::string& folder, launch::Fd listener, const http::AccessRules& access);

 private:
  launch::Fd lifeline_;
};

// Nothing where another process starts it, or nobody asked. ConfigError when it cannot listen; a rank that was started
// again goes on without it. Call it before the process has threads.
std::optional<RunWatcher> start_watcher(WatchOptions options, const std::string& folder,
                                        const std::optional<launch::Job>& job);

}  // namespace orthant::cli
