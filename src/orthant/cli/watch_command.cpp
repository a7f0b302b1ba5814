// orthant watch: a run that goes on, as a page that follows it or as text.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <iostream>

#include "orthant/base/error.h"
#include "orthant/cli/command.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/run_watcher.h"
#include "orthant/launch/signal_watch.h"
#include "orthant/watch/run_text.h"
#include "orthant/watch/watch_server.h"

namespace orthant::cli {
namespace {

class StopSignal {
 public:
  // Whether somebody has asked to stop so far. Never blocks.
  bool has_come() {
    for (const int signal : signals_.take()) come_ = come_ || launch::asks_to_stop(signal);
    return come_;
  }
  // Waits until then, or until a signal comes.
  void wait_until(launch::Clock::time_point deadline) { launch::wait_until(signals_.fd(), POLLIN, deadline); }

 private:
  launch::SignalWatch signals_;
  bool come_ = false;
};

watch::TerminalSize terminal_size() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {};
  return {size.ws_col, size.ws_row};
}

// Until the run ends, or a signal comes: also SIGPIPE, when nobody reads any more.
void watch_as_text(watch::RunWatch& run, StopSignal& stop) {
  const bool terminal = isatty(STDOUT_FILENO) != 0;
  watch::RunLines lines;
  std::signal(SIGPIPE, SIG_DFL);
  if (terminal) std::cout << "\x1b[2J";
  for (;;) {
    std::cout << (terminal ? watch::screen_of(run, terminal_size()) : lines.next(run)) << std::flush;
    if (run.has_ended() || stop.has_come() || !std::cout) break;
    stop.wait_until(run.next_look());
    run.look();
  }
  if (!terminal && run.has_ended()) std::cout << watch::RunLines::last(run) << std::flush;
}

}  // namespace

int run_watch(const Arguments& arguments, Context& context) {
  OptionParser app("Shows a run while it goes on: a page that follows it, or text. It only reads the run's folder.",
                   "orthant watch");
  std::string path;
  WatchPlace place;
  bool text = false;
  app.add_option("run", path, "folder of the run").required();
  app.add_option("--host", place.host, "address to listen on (default 127.0.0.1: this machine alone)");
  app.add_option("--port", place.port, "port of the page; 0: any free one (default 8400)").check(NumberRange(0, 65535));
  app.add_option("--api-key-file", place.key_file,
                 "file of mode 0600 with keys, one a line, that readers must send: browsers ask for one as a password");
  app.add_flag("--text", text, "text in this terminal, drawn over and over; lines where the output is no terminal");
  if (!parse(app, arguments, context, "orthant watch runs/demo-1\n  ssh node7 orthant watch runs/demo-1 --text"))
    return 0;
  refuse_empty(app, {"--host", "--api-key-file"});
  for (const char* option : {"--host", "--port", "--api-key-file"}) {
    if (!text || app.count(option) == 0) continue;
    throw ConfigError(fmt::format("--text beside {}: text goes to this terminal, and nothing is served", option),
                      {.remedy = "leave one of them out"});
  }
  report::check_run_folder(path);
  const auto access =
      text ? http::AccessRules()
           : http::access_rules({.host = place.host, .key_file = place.key_file, .could = "read the run"});
  watch::RunWatch run(path);
  if (is_empty(run.run())) report::refuse_empty_run(path);
  StopSignal stop;
  if (text) {
    watch_as_text(run, stop);
    return 0;
  }
  auto listener = listen_at(place);
  std::cout << fmt::format("Watching {} at {} (Ctrl-C stops)", path, address_of(place, listener)) << std::endl;
  watch::serve_run(run, std::move(listener), access, [&] { return stop.has_come(); });
  return 0;
}

}  // namespace orthant::cli
