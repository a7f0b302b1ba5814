// Carries the ranks' output to the launcher's own stdout and stderr, line by line with the rank in front, and to one
// log file per rank. Nothing here blocks: input is read when it is there, output is written when it is taken, and a
// reader that is slower than the ranks holds the ranks back, never the launcher.
#pragma once

#include <poll.h>

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/launch/sockets.h"

namespace orthant::launch {

enum class OutputMode {
  kRankZero,          // rank 0's stdout passes through untouched; every other line is prefixed and goes to stderr
  kPrefixed,          // every line is prefixed and goes to stderr
  kPrefixedByStream,  // every line is prefixed; stdout stays stdout, stderr stays stderr
};

// Cuts a byte stream into lines. A line longer than kLongestLine is handed out in pieces.
class LineCutter {
 public:
  static constexpr std::size_t kLongestLine = 64 * 1024;

  // Calls take(text, ended) per line; `ended` is false for a piece that no newline closed. Local.
  template <typename Take>
  void feed(std::string_view bytes, const Take& take) {
    while (!bytes.empty()) {
      const auto newline = bytes.find('\n');
      const bool ended = newline != std::string_view::npos;
      rest_.append(bytes.substr(0, newline));
      bytes.remove_prefix(ended ? newline + 1 : bytes.size());
      if (ended || rest_.size() >= kLongestLine) hand_out(take, ended);
    }
  }
  template <typename Take>
  void finish(const Take& take) {
    if (!rest_.empty()) hand_out(take, false);
  }

 private:
  template <typename Take>
  void hand_out(const Take& take, bool ended) {
    take(std::string_view(rest_), ended);
    rest_.clear();
  }
  std::string rest_;
};

class OutputPump {
 public:
  OutputPump(OutputMode mode, int stdout_fd, int stderr_fd);

  // `log` may be empty. `pass_stdout_through` has its effect under kRankZero only.
  void add_rank(int rank, Fd output, Fd errors, Fd log, bool pass_stdout_through);

  // Descriptors to wait for before the next pump(). Local.
  void add_poll_fds(std::vector<pollfd>& fds) const;

  // Reads and writes what is possible now. Local, never blocks.
  void pump();

  // Whoever read this launcher's stdout is gone, or cannot take more. Local.
  bool stdout_is_broken() const { return out_.broken; }

  // All ranks have closed their ends. Local.
  bool sources_ended() const;

  // Reads what is left and closes: for pipes that a stray descendant of a rank still holds open. Local, never blocks.
  void close_sources();

  // Everything read has been written, or can never be. Local.
  bool drained() const;

  // Up to the last 15 lines a rank wrote, both streams together. Local.
  std::vector<std::string> last_lines(int rank) const;

 private:
  struct Sink {
    int fd = -1;
    std::string waiting;
    bool broken = false;  // nobody reads any more: what comes is dropped
    void write_some();
    bool full() const { return waiting.size() > 1024 * 1024; }
  };
  struct RankOutput {
    int rank = 0;
    Fd log;
    std::deque<std::string> tail;
  };
  struct Source {
    RankOutput* owner = nullptr;
    Sink* sink = nullptr;
    Fd fd;
    bool prefixed = true;
    LineCutter lines;
  };

  void add_source(RankOutput& owner, Fd fd, Sink& sink, bool prefixed);
  void read_some(Source& source, std::size_t at_most);
  void take_line(Source& source, std::string_view text, bool ended);
  void end(Source& source);

  OutputMode mode_;
  Sink out_;
  Sink err_;
  std::deque<RankOutput> ranks_;
  std::deque<Source> sources_;
};

}  // namespace orthant::launch
