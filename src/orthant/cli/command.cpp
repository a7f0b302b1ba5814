#include "orthant/cli/command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <span>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/option_parser.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/foreign_names.h"

namespace orthant::cli {
namespace {

std::vector<std::string> option_names(const OptionParser& app) {
  std::vector<std::string> names;
  for (const Option& option : app.get_options()) {
    for (const auto& name : option.get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// "false" of `--fp16 false` and `--fp16=false`; empty where no value follows.
std::string value_of_first(const std::vector<std::string>& words) {
  const auto equals = words.front().find('=');
  if (equals != std::string::npos) return words.front().substr(equals + 1);
  return words.size() > 1 && !words[1].starts_with("-") ? words[1] : "";
}

// `words` are those that no option of `app` takes; the first one is refused.
[[noreturn]] void refuse_unknown(const OptionParser& app, const std::vector<std::string>& words) {
  const auto& word = words.front();
  const auto name = word.substr(0, word.find('='));
  if (app.get_name() == "orthant launch" && !word.starts_with("-")) {
    throw ConfigError(fmt::format("orthant launch: '{}' is not an option", word),
                      {.remedy = fmt::format("write the program after a lone --: orthant launch ... -- {}", word)});
  }
  const auto names = option_names(app);
  if (name == "--key-file" && std::ranges::find(names, "--set") != names.end()) {
    throw ConfigError(fmt::format("{}: unknown option '{}'", app.get_name(), word),
                      {.remedy = "name the key file with --set checkpoint.key_file=FILE"});
  }
  const auto hint = hint_of_option(name, value_of_first(words));
  if (!hint.empty() && std::ranges::find(names, "--set") != names.end()) {
    throw ConfigError(fmt::format("{}: unknown option '{}'", app.get_name(), word), {.remedy = hint});
  }
  const auto near = nearest(name, names);
  throw ConfigError(
      fmt::format("{}: unknown {} '{}'", app.get_name(), word.starts_with("-") ? "option" : "argument", word),
      {.remedy = near ? fmt::format("did you mean {}?", *near) : fmt::format("see {} --help", app.get_name())});
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {
      {"train", "train a model by a configuration", run_train},
      {"init", "look at a model and data, and write a configuration that trains them", run_init},
      {"evaluate", "measure a trained model on another file", run_evaluate},
      {"predict", "say what a trained model makes of each row or document of a file", run_predict},
      {"parity", "prove that two ways to train a model compute the same numbers", run_parity},
      {"data", "prepare, look at and generate data", run_data},
      {"forward", "compute the logits or hidden states of a stored model", run_forward},
      {"generate", "let a stored model go on with texts", run_generate},
      {"serve", "serve a stored model over HTTP", run_serve},
      {"checkpoint", "look at, verify, export and import checkpoints", run_checkpoint},
      {"tokenize", "turn lines of text into token ids, and ids back into text", run_tokenize},
      {"mesh", "show how ranks lie on the axes, every group, and what travels on each axis", run_mesh},
      {"simulate", "draw a pipeline schedule: how long it takes, what waits and what is kept", run_simulate},
      {"plan", "find the mesh, schedule and sharding that fit a model on a number of cards and are fastest", run_plan},
      {"estimate", "price one way to train a model: memory, time, what travels", run_estimate},
      {"bench", "measure steps, communication, start-up, loading and tokenizing on this machine", run_bench},
      {"doctor", "say what is wrong with this machine, with --mesh let ranks talk; or why a run failed or is slow",
       run_doctor},
      {"report", "show what runs came to, and where their time went, as a page or side by side", run_report},
      {"watch", "show a run while it goes on, as a page that follows it or as text", run_watch},
      {"launch", "start a program on many ranks, on one host or several", run_launch},
  };
  return kCommands;
}

int run_sub_command(const std::string& group, const std::vector<Command>& table, const std::string& example,
                    const Arguments& arguments, Context& context) {
  const std::string what = arguments.empty() ? "--help" : arguments[0];
  std::vector<std::string> names;
  for (const auto& command : table) {
    if (what == command.name) return command.run({arguments.begin() + 1, arguments.end()}, context);
    names.emplace_back(command.name);
  }
  if (what != "--help" && what != "-h") {
    throw ConfigError(fmt::format("orthant {}: unknown command '{}'", group, what),
                      {.remedy = did_you_mean(what, names)});
  }
  std::cout << fmt::format("Usage: orthant {} COMMAND [OPTIONS]\n\n", group);
  for (const auto& command : table) std::cout << fmt::format("  {:15} {}\n", command.name, command.summary);
  std::cout << fmt::format("\nExample:\n  {}\n", example);
  return 0;
}

void refuse_empty(const OptionParser& app, const std::vector<const char*>& options) {
  for (const char* option : options) {
    if (app.count(option) == 0 || !app[option].text().empty()) continue;
    throw ConfigError(fmt::format("{} is empty", option), {.remedy = "give it a value, or leave it out"});
  }
}

void write_output(const char* option, const std::string& path, const std::string& text) {
  try {
    std::error_code unknown;
    const auto kind = std::filesystem::status(path, unknown).type();
    if (kind == std::filesystem::file_type::regular || kind == std::filesystem::file_type::not_found) {
      write_file_atomically(path, text);
    } else {
      FileHandle(path, O_WRONLY).write_all(std::as_bytes(std::span(text)));
    }
  } catch (const IoError& error) {
    const int number = error.error_number();
    const auto message = fmt::format("{} {} cannot be written: {}", option, path, std::strerror(number));
    if (number == ENOSPC || number == EDQUOT || number == EFBIG) throw IoError(message, number, {error.remedy()});
    throw ConfigError(message, {.remedy = "name a file in a folder that exists and may be written"});
  }
}

Arguments with_dashes(const Arguments& arguments) {
  Arguments out = arguments;
  for (auto& word : out) {
    if (word == "--") break;
    if (!word.starts_with("--")) continue;
    const auto end = word.begin() + static_cast<std::ptrdiff_t>(std::min(word.find('='), word.size()));
    std::replace(word.begin(), end, '_', '-');
  }
  return out;
}

void check_timeout(double seconds) {
  if (seconds > 0 && seconds <= 1e7) return;
  throw ConfigError(fmt::format("--timeout {} is not a number of seconds between 0 and 10000000", seconds),
                    {.remedy = "use e.g. --timeout 300"});
}

bool parse(OptionParser& app, const Arguments& arguments, Context& context, const std::string& example) {
  bool no_color = false;
  app.add_flag("--no-color", no_color, "plain text (also by the variable NO_COLOR)");
  app.footer("Example:\n  " + example);
  try {
    // A program after a lone `--` is not ours to parse.
    if (!app.parse(with_dashes(arguments))) {
      std::cout << app.help();
      return false;
    }
  } catch (const ParseError& error) {
    // A mistyped option is the likelier cause of whatever else is missing.
    const auto extras = app.remaining();
    if (!extras.empty()) refuse_unknown(app, extras);
    throw ConfigError(fmt::format("{}: {}", app.get_name(), error.what()),
                      {.remedy = error.given_twice() ? "give it once" : fmt::format("see {} --help", app.get_name())});
  }
  const bool unwanted = no_color || context.environment.contains("NO_COLOR");
  context.color = !unwanted && isatty(STDERR_FILENO) != 0;
  return true;
}

}  // namespace orthant::cli
