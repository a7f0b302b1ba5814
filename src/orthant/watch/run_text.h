// A run that goes on, as text: drawn over and over on a terminal, or as lines where the output is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "orthant/watch/run_watch.h"

namespace orthant::watch {

struct TerminalSize {
  std::size_t columns = 80;
  std::size_t rows = 24;
};

// The whole screen, from its first line.
std::string screen_of(const RunWatch& watch, TerminalSize size);

class RunLines {
 public:
  // What has happened since the last call: a line for the newest step, one for each restart and step that was left out,
  // and one when the run's most likely cause of trouble changes.
  std::string next(const RunWatch& watch);
  // How it ended.
  static std::string last(const RunWatch& watch);

 private:
  std::int64_t step_ = -1;
  std::size_t marks_ = 0;
  std::string cause_ = "running";
};

}  // namespace orthant::watch
