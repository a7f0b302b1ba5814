// The commands of `orthant data` that look at files, one function each, and the live count of rows they share.
#pragma once

#include <chrono>
#include <cstdint>

#include "orthant/cli/command.h"

namespace orthant::cli {

int run_data_inspect(const Arguments& arguments, Context& context);
int run_prepare_text(const Arguments& arguments, Context& context);
int run_make_vocabulary(const Arguments& arguments, Context& context);

// Rows read so far, on stderr, ten times a second at most; nothing where that is no terminal. Takes its line away in
// the end.
class LiveRows {
 public:
  LiveRows();
  ~LiveRows();
  LiveRows(const LiveRows&) = delete;
  LiveRows& operator=(const LiveRows&) = delete;

  void show(std::int64_t rows);

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace orthant::cli
