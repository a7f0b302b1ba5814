// orthant plan: which mesh for a model and a machine. Searches what `orthant train` accepts; also sizes inference,
// scaling over numbers of cards, and seed 001's own examples. Runs nothing.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/cli/calibrate.h"
#include "orthant/cli/command.h"
#include "orthant/cli/devices.h"
#include "orthant/cli/model_texts.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/plan_options.h"
#include "orthant/cli/planned_run.h"
#include "orthant/files/path_facts.h"
#include "orthant/launch/scripts.h"
#include "orthant/plan/estimate/inference_size.h"
#include "orthant/plan/report/plan_html.h"
#include "orthant/plan/report/plan_json.h"
#include "orthant/plan/search/scaling.h"
#include "orthant/plan/search/search.h"

namespace orthant::cli {
namespace {

struct PlanCommand {
  PlanOptions common;
  int cards = 0;
  int top = 5;
  std::string strategy = "throughput";
  std::string scaling;
  std::string write_config;
  bool force = false;
  std::string scaling_kind = "weak";
  bool inference = false;
  InferenceRequest serving;
  std::string mesh;
  CalibrateOptions calibration;
};

// One of the things this command does, and the options that belong to it.
struct Errand {
  const char* option;  // that asks for it; empty: the search
  std::vector<std::string> takes;
};

const std::vector<Errand>& errands() {
  static const std::vector<Errand> kErrands = {
      {"--calibrate", {"--device", "--compute", "--rounds", "--ranks-per-device", "--json"}},
      {"--inference", {"--model", "--gpu", "--gpus-per-node", "--mesh", "--context", "--batch", "--reserve", "--json"}},
      {"",
       {"--model", "--gpu", "--gpus-per-node", "--gpus", "--global-batch", "--seq", "--params", "--compute", "--grads",
        "--tokens", "--html", "--json", "--top", "--strategy", "--scaling", "--scaling-kind", "--reserve",
        "--write-config", "--force"}}};
  return kErrands;
}

// ConfigError for an option that the errand has no use for.
const Errand& asked_errand(const OptionParser& app) {
  const auto& all = errands();
  const auto errand = std::ranges::find_if(
      all, [&](const Errand& one) { return std::string_view(one.option).empty() || app.count(one.option) > 0; });
  for (const Option& option : app.get_options()) {
    const std::string name = option.get_name();
    if (option.count() == 0 || name == errand->option || name == "--no-color" || name == "--help") continue;
    if (std::ranges::find(errand->takes, name) != errand->takes.end()) continue;
    const auto owner = std::ranges::find_if(
        all, [&](const Errand& one) { return std::ranges::find(one.takes, name) != one.takes.end(); });
    const std::string use = owner == all.end() || std::string_view(owner->option).empty()
                                ? std::string("the search for a plan")
                                : std::string(owner->option);
    throw ConfigError(fmt::format("{} has no meaning {}", name,
                                  *errand->option == '\0' ? "without " + use : fmt::format("with {}", errand->option)),
                      {.remedy = fmt::format("leave it out: it belongs to {}", use)});
  }
  return *errand;
}

// "8,16,32".
std::vector<int> parse_counts(const std::string& text) {
  std::vector<int> counts;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    int count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc() || (next != end && *next != ',')) {
      throw ConfigError(fmt::format("--scaling {}: not a list of numbers", text),
                        {.remedy = "write numbers of cards, as in --scaling 8,16,32"});
    }
    counts.push_back(count);
    at = next == end ? end : next + 1;
  }
  return counts;
}

SearchRequest request_of(const PlanCommand& command) {
  SearchRequest request;
  request.model = asked_model(command.common);
  request.hardware = asked_hardware(command.common);
  request.cards = command.cards;
  request.global_batch = command.common.global_batch;
  request.sequence = command.common.sequence;
  request.strategy = parse_strategy(command.strategy);
  request.top = command.top;
  request.params = asked_dtype("--params", command.common.params);
  if (command.common.compute == kFloat8Name) {
    throw ConfigError("--compute float8: the search prices products in 16 bits",
                      {.remedy = "use --compute bfloat16, and price the plan by orthant estimate --compute float8"});
  }
  request.compute = asked_dtype("--compute", command.common.compute);
  request.gradients = asked_dtype("--grads", command.common.gradients);
  return request;
}

void add_options(OptionParser& app, PlanCommand& command) {
  add_plan_options(app, command.common);
  app.add_option("--gpus", command.cards, "number of cards");
  app.add_option("--top", command.top, "how many plans to show (default 5)");
  app.add_option("--strategy", command.strategy, "throughput, memory or latency (default throughput)");
  app.add_option("--write-config", command.write_config,
                 "write the best plan over the planned configuration to this file, for orthant train --config");
  app.add_flag("--force", command.force, "replace the file of --write-config when it is there");
  app.add_option("--scaling", command.scaling, "numbers of cards, e.g. 8,16,32: the best plan and efficiency of each");
  app.add_option("--scaling-kind", command.scaling_kind, "weak (the batch grows) or strong (default weak)");
  app.add_flag("--inference", command.inference, "size inference instead: weights, cache, largest batch and context");
  app.add_option("--calibrate", command.calibration.path,
                 "measure this machine into this file, for --gpu and for --hardware of orthant train");
  app.add_option("--device", command.calibration.device, "with --calibrate: cpu, cuda or auto (default auto)");
  app.add_option("--rounds", command.calibration.rounds, "with --calibrate: rounds of measurements (default 9)")
      .check(NumberRange(3, 1000));
  app.add_option("--ranks-per-device", command.calibration.ranks_per_device,
                 "with --calibrate: ranks that share a GPU over NCCL, to try what several cards do (default 1)")
      .check(NumberRange(1, 64));
  app.add_option("--mesh", command.mesh, "with --inference: pp and tp of one copy, e.g. pp=2,tp=4");
  app.add_option("--context", command.serving.context, "with --inference: tokens of a sequence (default: longest)");
  app.add_option("--batch", command.serving.batch, "with --inference: sequences at one time (default 1)");
}

int size_serving(const OptionParser& app, PlanCommand& command) {
  for (const char* needed : {"--model", "--gpu"}) require_option(app, needed);
  command.serving.model = asked_model(command.common);
  command.serving.hardware = asked_hardware(command.common);
  if (!command.mesh.empty()) command.serving.mesh = Mesh::parse(command.mesh);
  const InferenceSize size = size_inference(command.serving);
  std::cout << (command.common.json ? to_json(size, 2) + "\n" : inference_text(size));
  return 0;
}

void print_json(const SearchResult& result, const SearchRequest& request, double tokens,
                const std::optional<ScalingCurve>& scaling) {
  auto document = nlohmann::ordered_json::parse(to_json(result));
  if (tokens > 0 && !result.plans.empty()) {
    document["budget"] = budget_document(budget_of(result.plans.front(), request.hardware, tokens), tokens);
  }
  if (scaling) document["scaling"] = nlohmann::ordered_json::parse(to_json(*scaling));
  std::cout << json_text(document, 2) << '\n';
}

void print_text(const SearchResult& result, const SearchRequest& request, double tokens,
                const std::optional<ScalingCurve>& scaling) {
  std::cout << search_text(result, request);
  if (tokens > 0 && !result.plans.empty()) {
    std::cout << '\n' << budget_text(budget_of(result.plans.front(), request.hardware, tokens), tokens) << ".\n";
  }
  if (scaling) std::cout << '\n' << scaling_text(*scaling, request);
}

void write_report(const PlanCommand& command, const SearchResult& result, const SearchRequest& request,
                  const std::optional<ScalingCurve>& scaling, const Context& context) {
  ReportExtras extras;
  extras.tokens = command.common.tokens;
  extras.scaling = scaling;
  extras.command = fmt::format("orthant {}", fmt::join(context.words, " "));
  write_output("--html", command.common.html, plan_html(result, request, extras));
}

void check_write_config(const OptionParser& app, const PlanCommand& command) {
  refuse_empty(app, {"--write-config"});
  if (command.force && command.write_config.empty()) {
    throw ConfigError("--force without --write-config, whose file it replaces",
                      {.remedy = "add --write-config FILE, or leave it out"});
  }
  if (command.write_config.empty() || command.force || !is_taken(command.write_config)) return;
  throw ConfigError(fmt::format("{} is there already", command.write_config),
                    {.remedy = "name another file, or replace it with --force"});
}

// Writes the configuration of the best plan, where one was asked for; gives the line that trains it.
RunLine written_run(const PlanCommand& command, const PlannedModel& model, const PlanSettings& best,
                    const Context& context) {
  if (command.write_config.empty()) return run_line(model);
  const bool card = built_with_cuda() && count_gpus(context.environment) > 0;
  write_output("--write-config", command.write_config, json_text(config_of_plan(model, best, card), 1) + "\n");
  return {.start = "orthant train --config " + launch::shell_quote(command.write_config),
          .note = command.write_config + " was written",
          .has_plan = true};
}

int run_search(const PlanCommand& command, const Context& context) {
  SearchRequest request = request_of(command);
  check_compute(request.compute, request.hardware);
  keep_some_free(command.common, request.hardware);
  SearchResult result = search(request);
  if (!result.plans.empty()) {
    const auto model = planned_model(command.common.model);
    const auto configured = configured_keys(model);
    for (Plan& plan : result.plans) plan.settings.configured = configured;
    result.run = written_run(command, model, result.plans.front().settings, context);
    if (const int per_node = request.hardware.cards_per_node; request.cards > per_node) {
      result.run.note += fmt::format("{}{} nodes: see docs/launch.md", result.run.note.empty() ? "" : "; ",
                                     (request.cards + per_node - 1) / per_node);
    }
  }
  std::optional<ScalingCurve> scaling;
  if (!command.scaling.empty()) {
    scaling = scaling_curve(request, parse_counts(command.scaling), parse_scaling(command.scaling_kind));
  }
  if (!command.common.html.empty()) write_report(command, result, request, scaling, context);
  (command.common.json ? print_json : print_text)(result, request, command.common.tokens, scaling);
  if (result.plans.empty() && !command.write_config.empty()) {
    throw ConfigError(
        fmt::format("--write-config {}: nothing fits, so there is no plan to write", command.write_config),
        {.remedy = "use more cards, or another model, batch or sequence length"});
  }
  return 0;
}

}  // namespace

int run_plan(const Arguments& arguments, Context& context) {
  OptionParser app(
      "Searches every mesh, schedule and sharding that `orthant train` accepts for a model on a number of cards, and "
      "says which fits and is fastest.",
      "orthant plan");
  PlanCommand command;
  add_options(app, command);
  if (!parse(app, arguments, context, std::string(example::kPlan) + known_names())) {
    return 0;
  }
  asked_errand(app);
  check_tokens(app, command.common.tokens);
  if (!command.calibration.path.empty()) {
    command.calibration.json = command.common.json;
    if (app.count("--compute") > 0) command.calibration.compute = command.common.compute;
    return calibrate(command.calibration, context);
  }
  if (command.inference) return size_serving(app, command);
  for (const char* needed : {"--model", "--gpus", "--gpu", "--global-batch", "--seq"}) require_option(app, needed);
  check_write_config(app, command);
  return run_search(command, context);
}

}  // namespace orthant::cli
