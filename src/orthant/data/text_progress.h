// How far the tokenization of text files is, on stderr: on a terminal one live line with a bar, redrawn at most ten
// times a second; elsewhere a plain line at least every ten seconds. Whether there is a terminal, and colour, is told.
#pragma once

#include <functional>
#include <ostream>
#include <string>

#include "orthant/data/tokenize_text.h"

namespace orthant {

struct TextProgressOptions {
  bool color = false;
  std::function<int()> terminal_width = {};    // columns now; empty: not a terminal
  std::function<double()> clock_seconds = {};  // rising; empty: the machine's steady clock
};

// "tokenizing  [####....]  12.5 MiB/31 MiB  9.8 MiB/s  eta 2 s  3.1M tokens", at most `width` columns; a width below 0
// is a log line, without the bar. `seconds` were spent so far.
std::string text_progress_line(const TextProgress& progress, double seconds, int width, bool color);

// Not thread-safe.
class TextProgressReport {
 public:
  // `out` must outlive this.
  TextProgressReport(std::ostream& out, TextProgressOptions options);
  // Ends a live line.
  ~TextProgressReport();
  TextProgressReport(const TextProgressReport&) = delete;
  TextProgressReport& operator=(const TextProgressReport&) = delete;

  void show(const TextProgress& progress);
  // Shows the last state when it was not shown yet, and ends the live line.
  void finish();

 private:
  void draw(double now);

  std::ostream& out_;
  TextProgressOptions options_;
  TextProgress last_;
  double began_seconds_;
  double shown_seconds_;
  bool pending_ = false;
  bool shown_ = false;
  bool on_line_ = false;
};

}  // namespace orthant
