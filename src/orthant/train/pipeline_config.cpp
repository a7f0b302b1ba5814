#include "orthant/train/pipeline_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/files/path_facts.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/models/family.h"
#include "orthant/models/totals.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/train/count_key.h"

namespace orthant {
namespace {

constexpr int kMostStages = 1 << 20;
constexpr double kMostMemoryGb = 1 << 20;

std::string read_schedule(JsonReader& section) {
  const auto schedule = section.get<std::string>("schedule", PipelineSettings().schedule);
  const auto& names = schedule_names();
  if (std::ranges::find(names, schedule) == names.end() && !is_schedule_file(schedule)) {
    section.fail("schedule", fmt::format("unknown schedule \"{}\"", schedule),
                 did_you_mean(schedule, names) + "; a file has a '/' or a '.' in its name");
  }
  return schedule;
}

// The primary tower, and all the rest.
std::vector<std::vector<std::string>> tower_split(const JsonReader& section, const ModelConfig& model) {
  if (model.family().task != Task::classification) {
    section.fail("split", fmt::format("is \"towers\", and a model of kind {} has none", model_kind(model)),
                 fmt::format("use \"auto\", or model.kind {}", first_family(Task::classification).name));
  }
  WorkSize work;  // names of units do not depend on it
  work.rows = work.sequence = 1;
  std::vector<std::vector<std::string>> stages(2);
  for (const UnitSpec& unit : build_spec(model, work).units) {
    stages[unit.name.starts_with("primary.") ? 0 : 1].push_back(unit.name);
  }
  return stages;
}

void read_split(JsonReader& section, const ModelConfig& model, PipelineSettings& settings) {
  if (!section.has("split")) {
    section.get<std::string>("split", "auto");
    return;
  }
  const auto& split = section.require_raw("split");
  if (split.is_number_integer() && split.get<std::int64_t>() >= 1 && split.get<std::int64_t>() <= kMostStages) {
    settings.stages = split.get<int>();
  } else if (split.is_array() && !split.empty()) {
    try {
      settings.split = split.get<std::vector<std::vector<std::string>>>();
    } catch (const nlohmann::json::exception&) {
      section.fail("split", "is not a list of lists of unit names", R"(use [["embed","layers.0"],["head","loss"]])");
    }
  } else if (split == "towers") {
    settings.split = tower_split(section, model);
  } else if (split != "auto") {
    section.fail("split", fmt::format("found {}", split.dump()),
                 "use \"auto\", \"towers\", a number of stages, or a list of lists of unit names");
  }
}

// Where the number of stages, and with it that per pp coordinate, follows from something else, no default is noted: the
// resolved configuration would then ask for another number.
int read_virtual_stages(JsonReader& section, const PipelineSettings& settings) {
  const char* key = "virtual_stages";
  const bool looped = settings.schedule == "interleaved" || settings.schedule == "zbv";
  const bool follows = is_schedule_file(settings.schedule) ||
                       (settings.schedule == "interleaved" &&
                        (settings.stages > 0 || !settings.split.empty() || !settings.placement.empty()));
  if (!section.has(key) && !follows) {
    section.get<std::int64_t>(key, looped ? 2 : 1);
    return 0;
  }
  if (!section.find<std::int64_t>(key)) return 0;
  const auto value = read_count(section, key, 1, 1);
  if (value > kMostStages) {
    section.fail(key, fmt::format("is {}; it must be at most {}", value, kMostStages),
                 fmt::format("use at most {}", kMostStages));
  }
  return static_cast<int>(value);
}

// {"embed": 0.001, "layers.0": 0.004, ...}
std::map<std::string, double> read_costs(const std::string& path) {
  JsonReader file(JsonDocument::load(path));
  std::map<std::string, double> costs;
  for (const auto& unit : file.keys()) {
    const auto seconds = file.require<double>(unit);
    if (seconds < 0) file.fail(unit, fmt::format("is {}", seconds), "give the seconds that the unit takes, 0 or more");
    costs[unit] = seconds;
  }
  if (costs.empty()) {
    throw ConfigError(fmt::format("{}: no unit has a cost", path),
                      {.remedy = R"(write {"unit name": seconds, ...} with every unit of the model)"});
  }
  return costs;
}

// Whether gradients of weights are made apart from those of inputs. A file that is not there is refused by whoever
// makes the pipeline.
bool splits_backward(const std::string& schedule) {
  const bool file = is_schedule_file(schedule);
  if (file && !orthant::is_regular_file(schedule)) return false;
  const StageTable table = file ? read_table(schedule) : make_schedule(schedule, 2, 0, 2).table;
  return std::ranges::any_of(table.actions, [](const auto& actions) {
    return std::ranges::any_of(actions, [](const StageAction& action) { return action.kind == StageKind::B; });
  });
}

}  // namespace

PipelineSettings read_pipeline(JsonReader& section, const ModelConfig& model) {
  PipelineSettings settings;
  settings.schedule = read_schedule(section);
  read_split(section, model, settings);
  settings.placement = section.find<std::vector<int>>("placement").value_or(std::vector<int>());
  settings.virtual_stages = read_virtual_stages(section, settings);
  const auto costs = section.find<std::string>("split_costs");
  const auto memory = section.find<double>("split_memory_gb");
  for (const auto& [key, given] :
       {std::pair("split_costs", costs.has_value()), std::pair("split_memory_gb", memory.has_value())}) {
    if (!given || settings.split.empty()) continue;
    section.fail(key, "is given beside a list of stages in parallel.split, which leaves nothing to cut",
                 fmt::format("leave {} out, or set parallel.split=auto", key));
  }
  if (costs) settings.unit_costs = read_costs(*costs);
  if (memory && !(*memory > 0 && *memory <= kMostMemoryGb)) {
    section.fail("split_memory_gb", fmt::format("is {}; it must be above 0 and at most {}", *memory, kMostMemoryGb),
                 "give the GiB that a rank may hold, or leave it out for no bound");
  }
  if (memory) settings.memory.rank_bytes = std::max(std::llround(*memory * (1 << 30)), 1LL);
  return settings;
}

void set_memory_bound(PipelineSettings& settings, const GraphSpec& graph, const Precision& precision,
                      int optimizer_copies, Recompute recompute) {
  if (settings.memory.rank_bytes == 0) return;
  const int degree = graph.tensor ? graph.tensor->degree : 1;
  const StateTypes types{.parameters = precision.params,
                         .compute = precision.compute,
                         .reduce = precision.reduce,
                         .moments = optimizer_copies,
                         .splits_parameters = precision.master == MasterKind::bf16_remainder};
  settings.memory.state_bytes.clear();
  settings.memory.kept_bytes.clear();
  const bool splits = splits_backward(settings.schedule);
  for (const UnitSpec& unit : graph.units) {
    UnitSpec held = unit;
    for (const auto& name : unit.borrowed) held.parameters.push_back(graph.parameter(name));
    // The last coordinate has the most of what does not divide evenly.
    for (auto& parameter : held.parameters) parameter.shape = local_parameter(parameter, degree, degree - 1).shape;
    settings.memory.state_bytes.push_back(state_bytes(held, types).total());
    const std::int64_t kept = unit.cost.kept_bytes.at(static_cast<std::size_t>(recompute));
    // A microbatch in flight waits for its gradients of inputs or of weights. Which one is left open, so that of a
    // split backward this is a bound.
    settings.memory.kept_bytes.push_back(splits ? std::max(kept, unit.cost.deferred_bytes) : kept);
  }
}

}  // namespace orthant
