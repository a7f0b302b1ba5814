// The program: finds the command, and turns errors into text and exit codes; launch/rank_process.cpp does so for
// ranks that this process forks.
#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>

#include "orthant/base/error.h"
#include "orthant/base/error_report.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/command.h"
#include "orthant/cli/process_facts.h"
#include "orthant/launch/environment.h"

namespace {

using orthant::cli::commands;

void print_help(std::ostream& out) {
  out << "orthant: hybrid-parallel training for C++\n\nUsage: orthant COMMAND [OPTIONS]\n\nCommands:\n";
  for (const auto& command : commands()) out << fmt::format("  {:10} {}\n", command.name, command.summary);
  out << "\nEach command has --help with an example. Exit codes: 0 done, 1 a comparison failed, 2 wrong use or "
         "configuration,\n"
         "3 communication, 4 bad data or no memory, 70 a defect of ours, 75 stopped on request after saving.\n\n"
         "Example:\n  orthant doctor --mesh pp=2,dp=2,tp=2\n";
}

int run(const std::vector<std::string>& words, orthant::cli::Context& context) {
  if (words.empty() || words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    print_help(words.empty() ? std::cerr : std::cout);
    return words.empty() ? 2 : 0;
  }
  if (words[0] == "--version") {
    std::cout << "orthant " << ORTHANT_VERSION << '\n';
    return 0;
  }
  std::vector<std::string> names;
  for (const auto& command : commands()) {
    if (words[0] == command.name) return command.run({words.begin() + 1, words.end()}, context);
    names.emplace_back(command.name);
  }
  const auto near = orthant::nearest(words[0], names);
  throw orthant::ConfigError(
      fmt::format("unknown command '{}'", words[0]),
      {.remedy = near ? fmt::format("did you mean 'orthant {}'?", *near) : "see orthant --help"});
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // past ulimit -f a write then fails with EFBIG, which is told
  orthant::cli::keep_freed_memory();
  orthant::cli::Context context;
  context.token_variable = orthant::launch::take_variable(orthant::launch::kTokenVariable);
  context.environment = orthant::launch::process_environment();
  context.program = orthant::cli::own_path();
  context.words.assign(argv + 1, argv + argc);
  int code = 0;
  try {
    code = run(context.words, context);
  } catch (const std::exception& error) {
    // In one piece: other ranks write to the same place.
    std::cerr << orthant::report_text(error, "orthant: error: ");
    code = orthant::report_of(error).exit_code;
  }
  // Leaving by _exit skips libtorch's static destructors, which take longer than many a command.
  std::cout.flush();
  if (!std::cout && code == 0) {
    std::cerr << "orthant: error: the result could not be written to stdout\n  fix: see whether the disk is full or "
                 "the reader is gone\n";
    code = 4;
  }
  std::cerr.flush();
  std::fflush(nullptr);
  _exit(code);
}
