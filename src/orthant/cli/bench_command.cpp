// orthant bench comm|startup: our side of the tables.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/bench.h"

namespace orthant::cli {

int run_bench(const Arguments& arguments, Context& context) {
  const std::vector<std::string> names{"comm", "startup"};
  const std::string what = arguments.empty() ? "--help" : arguments[0];
  const Arguments rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (what == "comm") return run_bench_comm(rest, context);
  if (what == "startup") return run_bench_startup(rest, context);
  if (what == "--help" || what == "-h") {
    std::cout << "Usage: orthant bench comm|startup [OPTIONS]\n\n"
                 "  comm      times of every operation, 4 KiB to 64 MiB\n"
                 "  startup   seconds from process creation to the first finished all-reduce, and memory per rank\n\n"
                 "Example:\n  orthant bench comm --mesh dp=2 --json\n";
    return 0;
  }
  const auto near = nearest(what, names);
  throw ConfigError(
      fmt::format("orthant bench: unknown benchmark '{}'", what),
      {.remedy = near ? fmt::format("did you mean {}?", *near) : fmt::format("use {}", fmt::join(names, " or "))});
}

}  // namespace orthant::cli
