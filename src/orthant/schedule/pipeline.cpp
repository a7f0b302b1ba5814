#include "orthant/schedule/pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/named_schedules.h"
#include "orthant/schedule/stage_edges.h"
#include "orthant/schedule/validate.h"

namespace orthant {
namespace {

// The same error, said of the key that asked for it.
template <typename Make>
auto said_of(const std::string& key, const Make& make) {
  try {
    return make();
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format("{}: {}", key, error.message()), {.remedy = error.remedy()}, error.where());
  }
}

// Where stages run, before it is known what is in them.
struct Places {
  std::vector<int> pp_coordinates;       // per stage: pp coordinate
  std::vector<int> in_flight = {};       // per stage; empty when no bound asks for it
  std::optional<StageTable> table = {};  // a file's
};

// How many stages a user asked for, and by which key; 0 when none says it.
struct AskedStages {
  int count = 0;
  std::string key;
};

AskedStages asked_stages(const PipelineSettings& settings) {
  const auto split = static_cast<int>(settings.split.size());
  if (split > 0 && settings.stages > 0 && settings.stages != split) {
    throw ConfigError(fmt::format("parallel.split lists {} stages beside a number of {}", split, settings.stages),
                      {.remedy = "set one of them"});
  }
  if (split > 0 || settings.stages > 0) return {std::max(split, settings.stages), "parallel.split"};
  return {static_cast<int>(settings.placement.size()), "parallel.placement"};
}

void check_units(const GraphSpec& graph, std::int64_t stages, std::string_view origin,
                 const PipelineSettings& settings) {
  const auto units = static_cast<std::int64_t>(graph.units.size());
  const auto most = settings.split.empty() ? most_stages(graph) : units;
  if (stages <= most) return;
  throw ConfigError(
      fmt::format("{} asks for {} stages; graph \"{}\" has {} units{}", origin, stages, graph.name, units,
                  most < units ? ", and a loss stays with the unit that feeds it" : ""),
      {.remedy = fmt::format(
           "use at most {} stages: a smaller mesh.pp, fewer stages per pp coordinate, or another parallel.split",
           most)});
}

// Every stage on one of `pp_degree` pp coordinates and none of these without; `key` is where the user said so.
void check_coordinates(const std::vector<int>& pp_coordinates, int pp_degree, std::string_view key) {
  for (std::size_t s = 0; s < pp_coordinates.size(); ++s) {
    if (pp_coordinates[s] >= 0 && pp_coordinates[s] < pp_degree) continue;
    throw ConfigError(
        fmt::format("{} puts stage {} on pp coordinate {}; mesh.pp is {}", key, s, pp_coordinates[s], pp_degree),
        {.remedy = fmt::format("use pp coordinates 0 to {}, or set another mesh.pp", pp_degree - 1)});
  }
  for (int coordinate = 0; coordinate < pp_degree; ++coordinate) {
    if (std::ranges::find(pp_coordinates, coordinate) != pp_coordinates.end()) continue;
    throw ConfigError(
        fmt::format("{} leaves pp coordinate {} without a stage; mesh.pp is {}", key, coordinate, pp_degree),
        {.remedy = "put a stage on every pp coordinate, or set a smaller mesh.pp"});
  }
}

// "parallel.schedule=1f1b on mesh.pp=2 with 1 stage per pp coordinate".
std::string schedule_text(const std::string& name, int pp_degree, int stages_per_pp) {
  return fmt::format("parallel.schedule={} on mesh.pp={} with {} stage{} per pp coordinate", name, pp_degree,
                     stages_per_pp, stages_per_pp == 1 ? "" : "s");
}

[[noreturn]] void refuse_count(const PipelineSettings& settings, const AskedStages& asked, int pp_degree,
                               int stages_per_pp) {
  const std::int64_t expected = std::int64_t{pp_degree} * stages_per_pp;
  const bool multiple = asked.count % pp_degree == 0 && asked.count >= 2 * pp_degree;
  std::string remedy = fmt::format("set {} stages", expected);
  if (settings.schedule == "interleaved" && settings.virtual_stages == 0) {
    remedy =
        fmt::format("set {}, {} or another multiple of mesh.pp={} stages", 2 * pp_degree, 3 * pp_degree, pp_degree);
  } else if (settings.schedule == "interleaved" && multiple) {
    remedy += fmt::format(", or parallel.virtual_stages={}", asked.count / pp_degree);
  }
  if (stages_per_pp > 1 && asked.count == pp_degree) remedy += ", or parallel.schedule=1f1b";
  if (stages_per_pp == 1) {
    if (asked.count > pp_degree) remedy += ", give parallel.placement the pp coordinate of each stage";
    if (multiple) remedy += ", set parallel.schedule=interleaved";
    remedy += fmt::format(", or set mesh.pp={}", asked.count);
  }
  throw ConfigError(fmt::format("{} has {} stage{}; {} has {}", asked.key, asked.count, asked.count == 1 ? "" : "s",
                                schedule_text(settings.schedule, pp_degree, stages_per_pp), expected),
                    {.remedy = remedy});
}

Places named_places(const GraphSpec& graph, int pp_degree, int microbatches, const PipelineSettings& settings) {
  const std::string& name = settings.schedule;
  const AskedStages asked = asked_stages(settings);
  int stages_per_pp = settings.virtual_stages;
  if (name == "interleaved" && stages_per_pp == 0 && asked.count % pp_degree == 0 && asked.count >= 2 * pp_degree) {
    stages_per_pp = asked.count / pp_degree;
  }
  stages_per_pp = said_of("parallel.virtual_stages", [&] { return virtual_stages(name, stages_per_pp); });
  const std::int64_t expected = std::int64_t{pp_degree} * stages_per_pp;
  const bool free_count = stages_per_pp == 1 && !settings.placement.empty();
  check_units(graph, asked.count > 0 ? asked.count : expected,
              asked.count > 0 ? asked.key : schedule_text(name, pp_degree, stages_per_pp), settings);
  if (asked.count > 0 && asked.count != expected && !free_count)
    refuse_count(settings, asked, pp_degree, stages_per_pp);
  const int stages = asked.count > 0 ? asked.count : static_cast<int>(expected);
  Places places{settings.placement.empty() ? schedule_placement(name, pp_degree, stages_per_pp) : settings.placement};
  if (static_cast<int>(places.pp_coordinates.size()) != stages) {
    throw ConfigError(
        fmt::format("parallel.placement has {} entries for {} stages", places.pp_coordinates.size(), stages),
        {.remedy = "give one pp coordinate per stage, or leave parallel.placement out"});
  }
  check_coordinates(places.pp_coordinates, pp_degree, "parallel.placement");
  if (settings.memory.rank_bytes > 0) {
    places.in_flight = stage_peaks(make_schedule(name, stages / stages_per_pp, stages_per_pp, microbatches).table);
  }
  return places;
}

void check_file(const StageTable& table, int pp_degree, int microbatches, const std::string& file) {
  if (is_forward_only(table)) {
    throw ConfigError(fmt::format("schedule file {} has no backward action: it is one of evaluation", file),
                      {.remedy = "write a BW, or a B and a W, for every F"});
  }
  if (static_cast<int>(table.actions.size()) != pp_degree) {
    throw ConfigError(
        fmt::format("schedule file {} is for {} pp coordinates; mesh.pp is {}", file, table.actions.size(), pp_degree),
        {.remedy = fmt::format("set mesh.pp={}, or write a line for each of {} pp coordinates", table.actions.size(),
                               pp_degree)});
  }
  if (table.num_microbatches != microbatches) {
    throw ConfigError(fmt::format("schedule file {} has {} microbatches; parallel.microbatches is {}", file,
                                  table.num_microbatches, microbatches),
                      {.remedy = fmt::format("set parallel.microbatches={}, or write actions of microbatches 0 to {}",
                                             table.num_microbatches, microbatches - 1)});
  }
}

// A file says it all; what is said besides must be the same.
Places file_places(const GraphSpec& graph, int pp_degree, int microbatches, const PipelineSettings& settings) {
  const std::string& file = settings.schedule;
  StageTable table = read_table(file);
  check_file(table, pp_degree, microbatches, file);
  const int stages = table.num_stages;
  Places places{stage_pp_coordinates(table)};
  check_coordinates(places.pp_coordinates, pp_degree, "schedule file " + file);
  if (!settings.placement.empty() && settings.placement != places.pp_coordinates) {
    throw ConfigError(fmt::format("parallel.placement is {}; schedule file {} has its stages on pp coordinates {}",
                                  fmt::join(settings.placement, ", "), file, fmt::join(places.pp_coordinates, ", ")),
                      {.remedy = "leave parallel.placement out, or move the stages in the file"});
  }
  const AskedStages asked = asked_stages(settings);
  if (asked.count > 0 && asked.count != stages) {
    throw ConfigError(fmt::format("{} has {} stage{}; schedule file {} has {}", asked.key, asked.count,
                                  asked.count == 1 ? "" : "s", file, stages),
                      {.remedy = fmt::format("cut the model into {} stages, or set parallel.split=auto", stages)});
  }
  // One per pp coordinate is what a configuration says that leaves it out.
  if (settings.virtual_stages > 1 && std::int64_t{settings.virtual_stages} * pp_degree != stages) {
    throw ConfigError(fmt::format("parallel.virtual_stages is {}; schedule file {} has {} stages on {} pp coordinates",
                                  settings.virtual_stages, file, stages, pp_degree),
                      {.remedy = "leave parallel.virtual_stages out"});
  }
  check_units(graph, stages, "schedule file " + file, settings);
  if (settings.memory.rank_bytes > 0) places.in_flight = stage_peaks(table);
  places.table = std::move(table);
  return places;
}

StageMap asked_split(const GraphSpec& graph, const PipelineSettings& settings,
                     const std::vector<int>& pp_coordinates = {}) {
  return said_of("parallel.split", [&] { return named_stages(graph, settings.split, pp_coordinates); });
}

std::vector<double> unit_costs(const GraphSpec& graph, const std::map<std::string, double>& measured) {
  std::vector<std::string> names;
  std::vector<double> costs;
  std::vector<std::string> missing;
  for (const UnitSpec& unit : graph.units) {
    names.push_back(unit.name);
    const auto found = measured.find(unit.name);
    if (found == measured.end()) missing.push_back(unit.name);
    costs.push_back(found == measured.end() ? unit.cost.forward_flops + unit.cost.input_flops + unit.cost.weight_flops
                                            : found->second);
  }
  if (measured.empty()) return costs;
  for (const auto& [name, seconds] : measured) {
    if (std::ranges::find(names, name) != names.end()) continue;
    throw ConfigError(
        fmt::format("parallel.split_costs has \"{}\", which is no unit of graph \"{}\"", name, graph.name),
        {.remedy = did_you_mean(name, names)});
  }
  if (!missing.empty()) {
    throw ConfigError(fmt::format("parallel.split_costs has no cost of {}", fmt::join(missing, ", ")),
                      {.remedy = "give the seconds of every unit, 0 where there are none"});
  }
  return costs;
}

// What a user says of a loss that is one unit with its head is said of the head.
PipelineSettings of_joined_units(PipelineSettings settings, const GraphSpec& graph) {
  for (const UnitSpec& unit : graph.units) {
    if (!unit.logits) continue;
    const std::string& loss = unit.logits->loss;
    for (auto& stage : settings.split) {
      if (std::ranges::find(stage, loss) == stage.end()) continue;
      if (std::ranges::find(stage, unit.name) == stage.end()) {
        throw ConfigError(
            fmt::format("parallel.split puts {} and {} in two stages; they are one unit", unit.name, loss),
            {.remedy = "name both in one stage, or set train.join_head_and_loss=off"});
      }
      std::erase(stage, loss);
    }
    if (const auto cost = settings.unit_costs.extract(loss); !cost.empty()) {
      settings.unit_costs[unit.name] += cost.mapped();
    }
  }
  return settings;
}

double imbalance_of(const StageMap& map, const std::vector<double>& costs) {
  std::vector<double> loads(static_cast<std::size_t>(map.pp_degree()), 0);
  for (std::size_t s = 0; s < map.units.size(); ++s) {
    for (const int unit : map.units[s]) {
      loads[static_cast<std::size_t>(map.pp_coordinates[s])] += costs[static_cast<std::size_t>(unit)];
    }
  }
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return sum > 0 ? std::ranges::max(loads) * static_cast<double>(loads.size()) / sum : 1;
}

// Stages on pp coordinates of their own, whose queues the one pp coordinate runs in turns. Schedules that have more
// than one stage to a pp coordinate, and files, have no order for this: theirs is that of 1f1b.
Pipeline on_single_pp_coordinate(const GraphSpec& graph, int microbatches, const PipelineSettings& settings,
                                 const std::vector<double>& costs) {
  PipelineSettings stages_only;
  stages_only.split = settings.split;
  stages_only.stages = settings.stages;
  const int stages = std::max(asked_stages(stages_only).count, 1);
  check_units(graph, stages, "parallel.split", settings);
  Pipeline pipeline;
  pipeline.map =
      settings.split.empty() ? split_stages(graph, stages, {.unit_costs = costs}).map : asked_split(graph, settings);
  const bool has_queues = settings.schedule == "gpipe" || settings.schedule == "zbh1";
  pipeline.table = stages == 1 ? one_stage(microbatches)
                               : on_one_pp_coordinate(make_schedule(has_queues ? settings.schedule : "1f1b",
                                                                    pipeline.map, graph, microbatches),
                                                      stage_edges(pipeline.map, graph));
  pipeline.map = on_one_pp_coordinate(std::move(pipeline.map));
  return pipeline;
}

Pipeline on_pp_coordinates(const GraphSpec& graph, int pp_degree, int microbatches, const PipelineSettings& settings,
                           const std::vector<double>& costs) {
  Places places = is_schedule_file(settings.schedule) ? file_places(graph, pp_degree, microbatches, settings)
                                                      : named_places(graph, pp_degree, microbatches, settings);
  Pipeline pipeline;
  if (settings.split.empty()) {
    SplitOptions options{.unit_costs = costs, .pp_coordinates = places.pp_coordinates, .memory = settings.memory};
    options.memory.in_flight = places.in_flight;
    pipeline.map = split_stages(graph, static_cast<int>(places.pp_coordinates.size()), options).map;
  } else {
    pipeline.map = asked_split(graph, settings, places.pp_coordinates);
  }
  pipeline.table = places.table ? std::move(*places.table) : said_of("parallel.schedule", [&] {
    return make_schedule(settings.schedule, pipeline.map, graph, microbatches);
  });
  return pipeline;
}

}  // namespace

std::vector<int> Pipeline::unit_pp_coordinates() const {
  auto pp_coordinates = unit_stages();
  for (int& stage : pp_coordinates) stage = map.pp_coordinates[static_cast<std::size_t>(stage)];
  return pp_coordinates;
}

std::vector<int> Pipeline::unit_stages() const {
  std::size_t count = 0;
  for (const auto& units : map.units) count += units.size();
  std::vector<int> stages(count, 0);
  for (std::size_t s = 0; s < map.units.size(); ++s) {
    for (const int unit : map.units[s]) stages.at(static_cast<std::size_t>(unit)) = static_cast<int>(s);
  }
  return stages;
}

bool is_schedule_file(std::string_view schedule) {
  const auto& names = schedule_names();
  return std::ranges::find(names, schedule) == names.end() && schedule.find_first_of("/.") != std::string_view::npos;
}

Pipeline make_pipeline(const GraphSpec& graph, int pp_degree, int microbatches, const PipelineSettings& asked) {
  if (pp_degree < 1) throw InternalError(fmt::format("a pipeline on {} pp coordinates", pp_degree));
  const PipelineSettings settings = of_joined_units(asked, graph);
  if (!is_schedule_file(settings.schedule)) check_schedule_name(settings.schedule);
  const std::vector<double> costs = unit_costs(graph, settings.unit_costs);
  Pipeline pipeline = pp_degree == 1 ? on_single_pp_coordinate(graph, microbatches, settings, costs)
                                     : on_pp_coordinates(graph, pp_degree, microbatches, settings, costs);
  pipeline.imbalance = imbalance_of(pipeline.map, costs);
  const bool of_file = pp_degree > 1 && is_schedule_file(settings.schedule);
  said_of(of_file ? "schedule file " + settings.schedule : "parallel.schedule=" + settings.schedule,
          [&] { validate(pipeline.table, pipeline.map, graph); });
  return pipeline;
}

}  // namespace orthant
