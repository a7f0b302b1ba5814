#include "orthant/cli/run_watcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/cli/command.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/watch/watch_server.h"

namespace orthant::cli {
namespace {

void write_word(const char* path, const char* word) {
  const launch::Fd file(open(path, O_WRONLY | O_CLOEXEC));
  if (file) [[maybe_unused]]
    const auto written = write(file.get(), word, std::strlen(word));
}

// Signals of the terminal are for the run, and what it prints is the run's.
void leave_the_job() {
  setsid();
  for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1}) std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  setpriority(PRIO_PROCESS, 0, 10);
  write_word("/proc/self/oom_score_adj", "1000");
  const launch::Fd nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(nothing.get(), fd);
}

// Until every other holder of the pipe has ended.
void watch_while(const launch::Fd& lifeline, const std::string& folder, launch::Fd listener,
                 const http::AccessRules& access) {
  watch::RunWatch run(folder);
  watch::serve_run(run, std::move(listener), access, [&] {
    char word = 0;
    const auto count = read(lifeline.get(), &word, 1);
    return count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR);
  });
}

}  // namespace

launch::Fd listen_at(const WatchPlace& place) {
  auto listener = launch::bind_tcp({launch::resolve(place.host), place.port});
  launch::start_listening(listener.get());
  return listener;
}

std::string address_of(const WatchPlace& place, const launch::Fd& listener) {
  return "http://" + launch::endpoint_text({place.host, launch::bound_endpoint(listener.get()).port}) + "/";
}

RunWatcher::RunWatcher(const std::string& folder, launch::Fd listener, const http::AccessRules& access) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0)
    throw ConfigError("no pipe to be had", {.remedy = "see ulimit -n"});
  const launch::Fd read_end(ends[0]);
  lifeline_.reset(ends[1]);
  const pid_t child = fork();
  if (child < 0) throw ConfigError("the process that serves the page cannot be started", {.remedy = "see ulimit -u"});
  if (child > 0) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return;
  }
  if (fork() != 0) _exit(0);
  lifeline_.reset();
  leave_the_job();
  try {
    watch_while(read_end, folder, std::move(listener), access);
  } catch (const std::exception&) {
    // The run goes on without its page.
  }
  _exit(0);
}

void add_watch_options(OptionParser& app, WatchOptions& options) {
  app.add_flag("--watch", options.page, "serve the run's page while it goes on, see orthant watch");
  app.add_option("--metrics-port", options.metrics_port,
                 "serve numbers for Prometheus, and the page, at this port; 0: any free one")
      .check(NumberRange(0, 65535));
  app.add_option("--watch-host", options.place.host,
                 "address that both listen on (default 127.0.0.1: this machine alone)");
  app.add_option("--watch-key-file", options.place.key_file,
                 "file of mode 0600 with keys, one a line, that readers of both must send");
}

void check_watch_options(const OptionParser& app, WatchOptions& options) {
  refuse_empty(app, {"--watch-host", "--watch-key-file"});
  for (const char* option : {"--watch-host", "--watch-key-file"}) {
    if (app.count(option) == 0 || app.count("--watch") + app.count("--metrics-port") > 0) continue;
    throw ConfigError(fmt::format("{} without --watch or --metrics-port: nothing is served", option),
                      {.remedy = "add --watch, or leave it out"});
  }
  if (options.asked())
    options.access = http::access_rules({.host = options.place.host,
                                         .key_file = options.place.key_file,
                                         .could = "read the run",
                                         .host_option = "--watch-host",
                                         .key_option = "--watch-key-file"});
}

std::optional<RunWatcher> start_watcher(WatchOptions options, const std::string& folder,
                                        const std::optional<launch::Job>& job) {
  if (!options.asked() || (job && job->rank > 0)) return std::nullopt;
  if (job && folder.empty()) {
    throw ConfigError(
        "--watch or --metrics-port under a launcher without --output-dir: which folder the run takes is known only "
        "once it has begun",
        {.remedy = "add --output-dir DIR"});
  }
  const auto start_at = [&](int port) -> RunWatcher {
    options.place.port = port;
    auto listener = listen_at(options.place);
    const auto address = address_of(options.place, listener);
    say(fmt::format("watch the run at {}, its numbers at {}metrics", address, address));
    return {folder, std::move(listener), options.access};
  };
  const bool chosen = options.metrics_port >= 0;
  if (chosen && (!job || job->restart_count == 0)) return start_at(options.metrics_port);
  try {
    return start_at(chosen ? options.metrics_port : kWatchPort);
  } catch (const ConfigError& error) {
    if (!chosen) return start_at(0);  // another run has the usual port
    say(fmt::format("the run is not served: {}", error.message()));
    return std::nullopt;
  }
}

}  // namespace orthant::cli
