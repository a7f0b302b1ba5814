// orthant simulate: how long a pipeline schedule takes, how much of it is waiting, what each pp coordinate keeps, and
// its picture. Checks schedule files. Runs nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/command.h"
#include "orthant/cli/option_parser.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/simulate.h"
#include "orthant/schedule/svg.h"
#include "orthant/schedule/timeline.h"
#include "orthant/schedule/validate.h"

namespace orthant::cli {
namespace {

struct SimulateOptions {
  std::string schedule;
  int pp_degree = 0;
  int microbatches = 0;
  int virtual_stages = 0;
  std::string cost;
  std::string from;
  std::string svg;
  bool json = false;
};

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == separator) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

// One number for all stages, or one for each, separated by slashes.
std::vector<double> parse_times(const std::string& name, const std::string& text, std::size_t stages) {
  std::vector<double> times;
  for (const std::string& part : split(text, '/')) {
    double time = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), time);
    if (error != std::errc() || end != part.data() + part.size() || !(time >= 0) || time > 1e15) {
      throw ConfigError(fmt::format("--cost {}={}: \"{}\" is no time", name, text, part),
                        {.remedy = "use numbers from 0 up, as in --cost F=1,B=1.5,W=1 or F=1/2/1 for three stages"});
    }
    times.push_back(time);
  }
  if (times.size() == 1) times.resize(stages, times[0]);
  if (times.size() != stages) {
    throw ConfigError(fmt::format("--cost {}={} has {} times for {} stages", name, text, times.size(), stages),
                      {.remedy = "give one time, or one for each stage"});
  }
  return times;
}

StageCosts parse_costs(const std::string& text, int num_stages) {
  static const std::vector<std::string> kNames = {"F", "B", "W", "P2P"};
  StageCosts costs(static_cast<std::size_t>(num_stages));
  if (text.empty()) return costs;
  for (const std::string& item : split(text, ',')) {
    const std::size_t equals = std::min(item.find('='), item.size());
    const std::string name = item.substr(0, equals);
    if (std::ranges::find(kNames, name) == kNames.end() || equals == item.size()) {
      throw ConfigError(fmt::format("--cost {}: \"{}\" is no cost", text, item),
                        {.remedy = name == item ? "write costs as F=1,B=1,W=1,P2P=0" : did_you_mean(name, kNames)});
    }
    const std::vector<double> times = parse_times(name, item.substr(equals + 1), costs.size());
    for (std::size_t s = 0; s < costs.size(); ++s) {
      StageCost& cost = costs[s];
      (name == "F" ? cost.forward : name == "B" ? cost.inputs : name == "W" ? cost.weights : cost.send) = times[s];
    }
  }
  return costs;
}

[[noreturn]] void refuse_other(const std::string& option, int asked, const std::string& file, std::size_t found,
                               const std::string& what) {
  throw ConfigError(fmt::format("{} {}: {} has {} {}", option, asked, file, found, what),
                    {.remedy = fmt::format("set {} {}, leave it out, or mend the file", option, found)});
}

// A file's table. What was asked besides must be what it holds; a missing microbatch is the validator's to name.
Schedule file_schedule(const SimulateOptions& options) {
  Schedule schedule;
  StageTable& table = schedule.table;
  table = read_table(options.from);
  if (options.pp_degree != 0 && static_cast<int>(table.actions.size()) != options.pp_degree) {
    refuse_other("--stages", options.pp_degree, options.from, table.actions.size(), "pp coordinates");
  }
  const int pp_degree = static_cast<int>(table.actions.size());
  if (options.virtual_stages != 0 && table.num_stages != pp_degree * options.virtual_stages) {
    throw ConfigError(fmt::format("--virtual {}: {} has {} stages on {} pp coordinates", options.virtual_stages,
                                  options.from, table.num_stages, pp_degree),
                      {.remedy = "leave it out, or mend the file"});
  }
  if (options.microbatches != 0) table.num_microbatches = options.microbatches;
  schedule.pp_coordinates = stage_pp_coordinates(table);
  return schedule;
}

Schedule asked_schedule(const SimulateOptions& options) {
  if (!options.schedule.empty()) check_schedule_name(options.schedule);
  if (!options.from.empty()) return file_schedule(options);
  for (const auto& [missing, option] :
       {std::pair(options.schedule.empty(), "--schedule"), std::pair(options.pp_degree == 0, "--stages"),
        std::pair(options.microbatches == 0, "--microbatches")}) {
    if (!missing) continue;
    throw ConfigError(fmt::format("orthant simulate: {} is missing", option),
                      {.remedy = "give --schedule, --stages and --microbatches, or a file with --from"});
  }
  return make_schedule(options.schedule, options.pp_degree, options.virtual_stages, options.microbatches);
}

std::string title_of(const SimulateOptions& options, const StageTable& table) {
  return fmt::format("{}: {} pp coordinates, {} stages, {} microbatches",
                     options.from.empty() ? options.schedule : options.from, table.actions.size(), table.num_stages,
                     table.num_microbatches);
}

void print_json(const Simulation& simulation, const StageTable& table) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const auto& actions : table.actions) {
    auto& row = ranks.emplace_back(nlohmann::ordered_json::array());
    for (const StageAction& action : actions) row.push_back(to_string(action));
  }
  const nlohmann::ordered_json document = {{"valid", true},
                                           {"makespan", simulation.makespan},
                                           {"bubble_fraction", simulation.bubble_fraction},
                                           {"peak_in_flight", simulation.peak_in_flight},
                                           {"ranks", ranks}};
  std::cout << json_text(document) << '\n';
}

void print_text(const Simulation& simulation, const std::string& title) {
  std::cout << timeline_text(simulation);
  std::cout << fmt::format("{}\nmakespan {:.6g}, bubble {:.1f}%, peak in flight per pp coordinate {}\n", title,
                           simulation.makespan, 100 * simulation.bubble_fraction,
                           fmt::join(simulation.peak_in_flight, " "));
}

}  // namespace

int run_simulate(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Shows what a pipeline schedule costs: a grid of time by pp coordinate, its length, the share of waiting and the "
      "microbatches in flight. An action is stage, kind and microbatch, as in 2BW5.",
      "orthant simulate");
  SimulateOptions options;
  const NumberRange counts(1, 1'000'000);
  app.add_option("--schedule", options.schedule, fmt::format("{}", fmt::join(schedule_names(), ", ")));
  app.add_option("--stages", options.pp_degree,
                 "P, the degree of pp; each pp coordinate runs V stages, so that the model is cut into P x V stages")
      .check(counts);
  app.add_option("--microbatches", options.microbatches, "M, microbatches of a step").check(counts);
  app.add_option("--virtual", options.virtual_stages,
                 "V, stages per pp coordinate (default 2 under interleaved and zbv, otherwise 1)")
      .check(counts);
  app.add_option("--cost", options.cost,
                 "times of a stage's actions and of sending what it writes: F=1,B=1,W=1,P2P=0 unless given; BW takes B "
                 "+ W; F=1/2/1 is stage by stage");
  app.add_option(
      "--from", options.from,
      "a file with the table, one line of actions per pp coordinate; numbers given besides must agree with it");
  app.add_option("--svg", options.svg, "write a picture to this file");
  app.add_flag("--json", options.json, "one JSON document on stdout");
  if (!parse(app, arguments, context, "orthant simulate --schedule 1f1b --stages 4 --microbatches 8")) return 0;

  const Schedule schedule = asked_schedule(options);
  const StageTable& table = schedule.table;
  validate_chain(table, schedule.pp_coordinates);
  const Simulation simulation =
      simulate(table, chain_edges(table.num_stages), parse_costs(options.cost, table.num_stages));
  const std::string title = title_of(options, table);
  if (!options.svg.empty()) write_output("--svg", options.svg, timeline_svg(simulation, title));
  if (options.json) {
    print_json(simulation, table);
  } else {
    print_text(simulation, title);
  }
  return 0;
}

}  // namespace orthant::cli
