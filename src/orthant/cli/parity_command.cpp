// orthant parity: proves that two ways to train one model compute the same numbers.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "orthant/base/error.h"
#include "orthant/base/json_text.h"
#include "orthant/base/nearest.h"
#include "orthant/cli/config_options.h"
#include "orthant/cli/option_parser.h"
#include "orthant/cli/rank_command.h"
#include "orthant/cli/rank_training.h"
#include "orthant/comm/faulty.h"
#include "orthant/cuda/kernel.h"
#include "orthant/files/whole_file.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/train/parity.h"
#include "orthant/train/run.h"

namespace orthant::cli {
namespace {

struct Options {
  ConfigOptions config;
  RankOptions ranks;
  std::string against = "one";
  std::string against_device;  // empty: as the tested side
  std::string dtype = "float64";
  std::string inject;
  std::string rows;  // a file of comparisons
  std::vector<std::string> varied;
  ParityOptions side;
  bool resume_given = false;
  bool dtype_given = false;
  bool sets_precision = false;  // by --set or --vary
  bool bitwise = false;
  bool json = false;
};

void add_options(OptionParser& app, Options& options) {
  add_config_options(app, options.config);
  app.add_option("--vary", options.varied, "KEY=VALUE for the tested side only, e.g. parallel.recompute=full")
      .take_all();
  app.add_option("--against", options.against, "the reference: one (one rank), a mesh, or a configuration file");
  app.add_option("--against-device", options.against_device, "device of the reference: cpu (default: as --device)");
  app.add_option("--steps", options.side.steps, "training steps (default 3)").check(NumberRange(1, 1000000));
  app.add_option("--dtype", options.dtype, "float64 (default), float32, bfloat16 or float16");
  app.add_option("--resume-at", options.side.resume_at,
                 "save the tested side after this step and continue from the checkpoint");
  app.add_option("--inject", options.inject, "skip-reduce=AXIS[:NAME]: leave out sums over an axis; must then fail");
  app.add_option("--rows", options.rows,
                 "file with a JSON list of options on each line: as many comparisons by the same ranks, a line each");
  app.add_flag("--bitwise", options.bitwise, "fail unless every bit is equal");
  app.add_flag("--json", options.json, "one JSON document on stdout");
  add_rank_options(app, options.ranks);
}

void check_options(const Options& options) {
  static const std::vector<std::string> kDtypes = {"float64", "float32", "bfloat16", "float16"};
  if (std::ranges::find(kDtypes, options.dtype) == kDtypes.end()) {
    throw ConfigError(fmt::format("--dtype {}: unknown", options.dtype),
                      {.remedy = did_you_mean(options.dtype, kDtypes)});
  }
  if (!options.against_device.empty() && options.against_device != "cpu") {
    throw ConfigError(
        fmt::format("--against-device {}: a reference on another device is on the CPU", options.against_device),
        {.remedy = "use cpu, or leave it out"});
  }
  for (const auto& assignment : options.config.overrides) {
    if (!options.dtype_given || !assignment.starts_with("precision")) continue;
    throw ConfigError(fmt::format("--dtype {} beside --set {}", options.dtype, assignment),
                      {.remedy = "leave --dtype out, or use --vary for the tested side alone"});
  }
  const auto& side = options.side;
  if (options.resume_given && (side.resume_at < 1 || side.resume_at > side.steps)) {
    throw ConfigError(fmt::format("--resume-at {} of {} steps", side.resume_at, side.steps),
                      {.remedy = fmt::format("use 1 to {}", side.steps)});
  }
}

// Whether the unit or parameter of that name makes a sum over tp.
bool has_tensor_sum(const GraphSpec& graph, const std::string& name) {
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      if (unit.name != name && parameter.name != name) continue;
      if (parameter.tp || parameter.partial_under_sequence_parallel) return true;
    }
    if (unit.logits && (unit.name == name || unit.logits->loss == name)) return true;
    if (unit.name != name) continue;
    for (const auto& input : unit.inputs) {
      const auto& value = graph.value(input);
      if (value.tp || (value.sequence_sharded && unit.kind.ends_with(".pooler"))) return true;
    }
  }
  return false;
}

// Whether stages share a parameter, or one of that unit or name, so that its gradients are summed over pp.
bool has_stage_sum(const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates, const std::string& name) {
  if (name.empty()) return !tied_user_sets(graph, unit_pp_coordinates).empty();
  const auto coordinate = [&](int unit) { return unit_pp_coordinates[static_cast<std::size_t>(unit)]; };
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      if (!parameter.trainable || (name != parameter.name && name != unit.name)) continue;
      const auto users = graph.users(parameter.name);
      const auto elsewhere = [&](int user) { return coordinate(user) != coordinate(users.front()); };
      if (std::ranges::any_of(users, elsewhere)) return true;
    }
  }
  return false;
}

void check_stage_sum(const std::string& text, const GraphSpec& spec, const RunConfig& config, const std::string& name) {
  const auto unit_pp_coordinates = trainer_pipeline(spec, config.mesh, config.trainer).unit_pp_coordinates();
  if (has_stage_sum(spec, unit_pp_coordinates, name)) return;
  throw ConfigError(fmt::format("--inject {}: stages share no trainable parameter{}, so there is nothing to leave out",
                                text, name.empty() ? "" : " of " + name),
                    {.remedy = "use a model with tied parameters, cut between their users"});
}

// There is such a unit or parameter, and over tp a sum of it.
void check_sum_of(const std::string& text, Axis axis, const GraphSpec& spec, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& unit : spec.units) {
    names.push_back(unit.name);
    if (unit.logits) names.push_back(unit.logits->loss);
    for (const auto& parameter : unit.parameters) names.push_back(parameter.name);
  }
  if (std::ranges::find(names, name) == names.end()) {
    throw ConfigError(fmt::format("--inject {}: the model has no unit or parameter {}", text, name),
                      {.remedy = did_you_mean(name, names)});
  }
  const auto trains = [&](const UnitSpec& unit) {
    return std::ranges::any_of(unit.parameters, [&](const ParameterSpec& parameter) {
      return parameter.trainable && (unit.name == name || parameter.name == name);
    });
  };
  if (axis != Axis::tp && std::ranges::none_of(spec.units, trains)) {
    throw ConfigError(fmt::format("--inject {}: {} has no gradients to sum", text, name),
                      {.remedy = "name a trainable parameter, or a unit that has one"});
  }
  if (axis == Axis::tp && !has_tensor_sum(spec, name)) {
    throw ConfigError(fmt::format("--inject {}: no sum over tp belongs to {}", text, name),
                      {.remedy = "name a parameter that tp cuts, its unit, or a loss over cut logits"});
  }
}

// "skip-reduce=fsdp" or "skip-reduce=fsdp:layers.1.attention.wq.weight".
comm::WrapTransport read_fault(const std::string& text, const RunConfig& config) {
  if (text.empty()) return {};
  constexpr std::string_view kKind = "skip-reduce=";
  if (!text.starts_with(kKind)) {
    throw ConfigError(fmt::format("--inject {}: unknown fault", text), {.remedy = "use skip-reduce=AXIS[:NAME]"});
  }
  const auto rest = text.substr(kKind.size());
  const auto colon = std::min(rest.find(':'), rest.size());
  const auto axis = parse_axis(rest.substr(0, colon));
  const auto name = rest.substr(std::min(colon + 1, rest.size()));
  if (axis == Axis::ep) {
    throw ConfigError(
        fmt::format("--inject {}: nothing is summed over ep; gradients of experts are summed over the ranks "
                    "that hold the same ones",
                    text),
        {.remedy = "leave out such a sum, e.g. skip-reduce=dp:layers.0.experts.0.w1.weight on a mesh where "
                   "several ranks hold that expert"});
  }
  if (config.mesh.degree(axis) == 1) {
    throw ConfigError(fmt::format("--inject {}: the mesh {} sums over no {} axis, so there is nothing to leave out",
                                  text, config.mesh.to_string(), axis_name(axis)),
                      {.remedy = "use a mesh with that axis"});
  }
  const auto spec = run_spec(config);
  if (!name.empty()) check_sum_of(text, axis, spec, name);
  if (axis == Axis::pp) check_stage_sum(text, spec, config, name);
  return comm::leave_out_sums(config.mesh, {.axis = axis, .name = name});
}

// The products run in `dtype`; bfloat16 and float16 keep float32 weights and gradients. What the user sets counts more.
void set_dtype(ConfigOptions& config, const std::string& dtype) {
  for (const char* part : {"params", "compute", "reduce"}) {
    const bool narrow = dtype.ends_with("float16") && std::string_view(part) != "compute";
    config.overrides.insert(config.overrides.begin(), fmt::format("precision.{}={}", part, narrow ? "float32" : dtype));
  }
}

// Of the side that rounds more.
double tolerance_of(const RunConfig& tested, const RunConfig& reference) {
  double tolerance = 0;
  for (const auto* config : {&tested, &reference}) {
    tolerance = std::max(tolerance, parity_tolerance(config->trainer.precision));
  }
  return tolerance;
}

void check_same_model(const GraphSpec& tested, const GraphSpec& reference) {
  std::map<std::string, Shape> shapes;
  for (const auto& unit : reference.units) {
    for (const auto& parameter : unit.parameters) shapes[parameter.name] = parameter.shape;
  }
  const auto refuse = [](const std::string& name) {
    throw ConfigError(fmt::format("parameter {} is not alike in both models", name),
                      {.remedy = "compare configs of one model"});
  };
  for (const auto& unit : tested.units) {
    for (const auto& parameter : unit.parameters) {
      const auto found = shapes.find(parameter.name);
      if (found == shapes.end() || found->second != parameter.shape) refuse(parameter.name);
      shapes.erase(found);
    }
  }
  if (!shapes.empty()) refuse(shapes.begin()->first);
}

LoadedConfig load_reference(const Options& options, const launch::Environment& environment) {
  auto config = options.config;
  auto ranks = options.ranks;
  if (options.against == "one") {
    ranks.mesh = "dp=1";
  } else if (options.against.find('=') != std::string::npos) {
    ranks.mesh = options.against;
  } else {  // a configuration, which has a mesh of its own
    config.config = options.against;
    ranks.mesh.clear();
    ranks.order.clear();
  }
  try {
    auto loaded = load_config(config, ranks, environment);
    if (!options.against_device.empty()) {  // the CPU has neither
      loaded.config.trainer.precision.tf32 = false;
      loaded.config.trainer.precision.float8 = false;
      loaded.config.trainer.product_plans = ProductChoice::heuristic;
    }
    return loaded;
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("--against {}: {}", options.against, error.message()), {.remedy = error.remedy()});
  }
}

// "float64", or what the user has set instead.
std::string precision_text(const Options& options, const Precision& precision) {
  if (!options.sets_precision) return options.dtype;
  return fmt::format("{} (computed in {}{}, reduced in {})", dtype_name(precision.params), compute_name(precision),
                     precision.tf32 ? " with TF32" : "", dtype_name(precision.reduce));
}

// "mesh tp=2 with parallel.regather=true against mesh dp=1, 3 steps in float64".
std::string compared_sides(const Options& options, const RunConfig& tested, const RunConfig& reference) {
  auto text = fmt::format("mesh {}", tested.mesh.to_string());
  if (!options.varied.empty()) text += fmt::format(" with {}", fmt::join(options.varied, ", "));
  if (!options.inject.empty()) text += fmt::format(" and {}", options.inject);
  text += fmt::format(" against mesh {}", reference.mesh.to_string());
  return text + fmt::format(", {} steps in {}", options.side.steps, precision_text(options, tested.trainer.precision));
}

}  // namespace

namespace {

// The two sides of one comparison, checked.
struct Comparison {
  Options options;
  LoadedConfig tested;
  LoadedConfig reference;
  comm::WrapTransport fault = {};
};

Comparison prepare(Options options, const Context& context) {
  check_options(options);
  set_dtype(options.config, options.dtype);
  options.ranks.compares = true;
  auto reference = load_reference(options, context.environment);
  options.config.overrides.insert(options.config.overrides.end(), options.varied.begin(), options.varied.end());
  auto tested = load_config(options.config, options.ranks, context.environment);
  auto fault = read_fault(options.inject, tested.config);
  for (const auto* side : {&tested, &reference}) {
    refuse_fake_backend(options.ranks, side->config.mesh);
    check_trainable(side->config);
    check_backend(options.ranks, context, side->config);
  }
  check_same_model(declared_spec(tested.config), declared_spec(reference.config));
  return {std::move(options), std::move(tested), std::move(reference), std::move(fault)};
}

// False where only help was asked for.
bool read_options(const Arguments& words, Context& context, Options& options) {
  OptionParser app("Trains a model in two ways and compares loss, gradient norm, gradients and weights.",
                   "orthant parity");
  add_options(app, options);
  if (!parse(app, words, context, "orthant parity --vary parallel.microbatches=4 --vary parallel.recompute=full")) {
    return false;
  }
  options.resume_given = app.count("--resume-at") > 0;
  options.dtype_given = app.count("--dtype") > 0;
  for (const auto* given : {&options.config.overrides, &options.varied}) {
    options.sets_precision |=
        std::ranges::any_of(*given, [](const auto& text) { return text.starts_with("precision"); });
  }
  return true;
}

// Of comparisons in a file: what is compared stands on its lines, where that runs on the command line.
void check_row_words(const std::vector<std::string>& words, bool on_line) {
  static const std::vector<std::string> kOfLine = {
      "--config",  "--set",     "--vary",      "--against",   "--against-device", "--steps",
      "--dtype",   "--inject",  "--bitwise",   "--resume-at", "--mesh",           "--order",
      "--pp-size", "--dp-size", "--fsdp-size", "--tp-size",   "--cp-size",        "--ep-size"};
  for (const auto& word : words) {
    if (!word.starts_with("--")) continue;
    auto name = word.substr(0, word.find('='));
    std::ranges::replace(name, '_', '-');
    const bool of_line = std::ranges::find(kOfLine, name) != kOfLine.end();
    if (of_line == on_line) continue;
    if (on_line) {
      throw ConfigError(fmt::format("{} on a line, which says what is compared", name),
                        {.remedy = fmt::format("give {} to the command, or leave it out", name)});
    }
    throw ConfigError(fmt::format("{} beside --rows, whose lines say what is compared", name),
                      {.remedy = fmt::format("write {} on the lines", name)});
  }
}

// The comparisons of a file: on each line the words of one, as a JSON list. Where they run is the command's matter.
std::vector<Comparison> read_rows(const Options& command, const Context& context) {
  std::vector<Comparison> rows;
  std::istringstream lines(read_text_file(command.rows));
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty()) continue;
    try {
      Options options;
      Context own = context;
      const auto words = nlohmann::json::parse(line).get<std::vector<std::string>>();
      check_row_words(words, /*on_line=*/true);
      read_options(words, own, options);
      auto ranks = command.ranks;
      ranks.mesh = options.ranks.mesh;
      ranks.order = options.ranks.order;
      options.ranks = ranks;
      rows.push_back(prepare(std::move(options), context));
    } catch (const nlohmann::json::exception&) {
      throw ConfigError(fmt::format("{} line {}: no JSON list of words", command.rows, number),
                        {.remedy = "write the options of one comparison, e.g. [\"--mesh\", \"pp=2\"]"});
    } catch (const ConfigError& error) {
      throw ConfigError(fmt::format("{} line {}: {}", command.rows, number, error.message()),
                        {.remedy = error.remedy()});
    }
  }
  if (rows.empty()) throw ConfigError(fmt::format("--rows {} has no line", command.rows), {.remedy = "write one"});
  return rows;
}

ParityResult compare(const Comparison& row, const std::string& name, RankContext& rank, RankTraining& training) {
  const auto run = [&](const LoadedConfig& loaded, const std::string& side, const ParityOptions& how) {
    auto config = loaded.config;
    if (!training.takes_part(config.mesh)) return ParitySide();
    if (!config.trainer.deterministic) config.trainer.deterministic = true;  // bits are compared, too
    training.prepare(config, resolved_config(loaded.document), name + side,
                     &loaded == &row.tested ? row.fault : nullptr);
    if (side == "reference" && !row.options.against_device.empty()) config.trainer.device = at::kCPU;
    return run_parity_side(config, how);
  };
  const auto expected = run(row.reference, "reference", {.steps = row.options.side.steps});
  const auto found = run(row.tested, "tested", row.options.side);
  if (!rank.is_first()) return {};
  auto result = compare_sides(found, expected, tolerance_of(row.tested.config, row.reference.config),
                              suspects(row.tested.config, row.reference.config));
  if (row.options.bitwise) result.pass = result.bitwise && result.replicas_equal;
  return result;
}

// On one line each, where there are several.
void print(const Comparison& row, const ParityResult& result, bool one_line) {
  const auto compared = compared_sides(row.options, row.tested.config, row.reference.config);
  if (!one_line && !row.options.json) {
    std::cout << compared << '\n' << parity_text(result) << std::flush;
    return;
  }
  auto document = parity_json(result);
  document["compared"] = compared;
  document["kernel_launches"] = cuda::KernelLibrary::of_process().num_launches();  // of this rank, on a CUDA device
  std::cout << (one_line ? document.dump() : json_text(document)) << std::endl;
}

}  // namespace

int run_parity(const Arguments& arguments, Context& context) {
  Options options;
  if (!read_options(arguments, context, options)) return 0;
  const bool several = !options.rows.empty();
  std::vector<Comparison> rows;
  if (several) {
    check_row_words(arguments, /*on_line=*/false);
    rows = read_rows(options, context);
  } else {
    rows.push_back(prepare(options, context));
  }
  auto ranks = rows.front().options.ranks;
  Mesh largest = rows.front().tested.config.mesh;
  for (const auto& row : rows) {
    for (const auto* side : {&row.tested, &row.reference}) {
      if (side->config.mesh.world_size() > largest.world_size()) largest = side->config.mesh;
    }
  }
  ranks.mesh = largest.to_string();
  ranks.order.clear();  // it is part of that
  return run_on_ranks(ranks, context, 1, [&](RankContext& rank) {
    RankTraining training(rank);
    bool pass = true;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto result = compare(rows[i], several ? fmt::format("{}-", i) : "", rank, training);
      if (!rank.is_first()) continue;
      print(rows[i], result, several);
      pass = pass && result.pass;
    }
    return pass ? 0 : kDifferentExitCode;
  });
}

}  // namespace orthant::cli
