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
  std::vector<int> rank;                 // per stage: pp coordinate
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
           "use at most {} stages: a smaller mesh.pp, fewer stages per rank, or another parallel.split", most)});
}

// Every stage on one of `ranks` coordinates and none of these without; `key` is where the user said so.
void check_coordinates(const std::vector<int>& rank, int ranks, std::string_view key) {
  for (std::size_t s = 0; s < rank.size(); ++s) {
    if (rank[s] >= 0 && rank[s] < ranks) continue;
    throw ConfigError(fmt::format("{} puts stage {} on pp coordinate {}; mesh.pp is {}", key, s, rank[s], ranks),
                      {.remedy = fmt::format("use pp coordinates 0 to {}, or set another mesh.pp", ranks - 1)});
  }
  for (int coordinate = 0; coordinate < ranks; ++coordinate) {
    if (std::ranges::find(rank, coordinate) != rank.end()) continue;
    throw ConfigError(fmt::format("{} leaves pp coordinate {} without a stage; mesh.pp is {}", key, coordinate, ranks),
                      {.remedy = "put a stage on every pp coordinate, or set a smaller mesh.pp"});
  }
}

// "parallel.schedule=1f1b on mesh.pp=2 with 1 stage per rank".
std::string schedule_text(const std::string& name, int ranks, int per_rank) {
  return fmt::format("parallel.schedule={} on mesh.pp={} with {} stage{} per rank", name, ranks, per_rank,
                     per_rank == 1 ? "" : "s");
}

[[noreturn]] void refuse_count(const PipelineSettings& settings, const AskedStages& asked, int ranks, int per_rank) {
  const std::int64_t own = std::int64_t{ranks} * per_rank;
  const bool multiple = asked.count % ranks == 0 && asked.count >= 2 * ranks;
  std::string remedy = fmt::format("set {} stages", own);
  if (settings.schedule == "interleaved" && settings.virtual_stages == 0) {
    remedy = fmt::format("set {}, {} or another multiple of mesh.pp={} stages", 2 * ranks, 3 * ranks, ranks);
  } else if (settings.schedule == "interleaved" && multiple) {
    remedy += fmt::format(", or parallel.virtual_stages={}", asked.count / ranks);
  }
  if (per_rank > 1 && asked.count == ranks) remedy += ", or parallel.schedule=1f1b";
  if (per_rank == 1) {
    if (asked.count > ranks) remedy += ", give parallel.placement the pp coordinate of each stage";
    if (multiple) remedy += ", set parallel.schedule=interleaved";
    remedy += fmt::format(", or set mesh.pp={}", asked.count);
  }
  throw ConfigError(fmt::format("{} has {} stage{}; {} has {}", asked.key, asked.count, asked.count == 1 ? "" : "s",
                                schedule_text(settings.schedule, ranks, per_rank), own),
                    {.remedy = remedy});
}

Places named_places(const GraphSpec& graph, int ranks, int microbatches, const PipelineSettings& settings) {
  const std::string& name = settings.schedule;
  const AskedStages asked = asked_stages(settings);
  int per_rank = settings.virtual_stages;
  if (name == "interleaved" && per_rank == 0 && asked.count % ranks == 0 && asked.count >= 2 * ranks) {
    per_rank = asked.count / ranks;
  }
  per_rank = said_of("parallel.virtual_stages", [&] { return virtual_stages(name, per_rank); });
  const std::int64_t own = std::int64_t{ranks} * per_rank;
  const bool free_count = per_rank == 1 && !settings.placement.empty();
  check_units(graph, asked.count > 0 ? asked.count : own,
              asked.count > 0 ? asked.key : schedule_text(name, ranks, per_rank), settings);
  if (asked.count > 0 && asked.count != own && !free_count) refuse_count(settings, asked, ranks, per_rank);
  const int stages = asked.count > 0 ? asked.count : static_cast<int>(own);
  Places places{settings.placement.empty() ? schedule_placement(name, ranks, per_rank) : settings.placement};
  if (static_cast<int>(places.rank.size()) != stages) {
    throw ConfigError(fmt::format("parallel.placement has {} entries for {} stages", places.rank.size(), stages),
                      {.remedy = "give one pp coordinate per stage, or leave parallel.placement out"});
  }
  check_coordinates(places.rank, ranks, "parallel.placement");
  if (settings.memory.rank_bytes > 0) {
    places.in_flight = stage_peaks(make_schedule(name, stages / per_rank, per_rank, microbatches).table);
  }
  return places;
}

void check_file(const StageTable& table, int ranks, int microbatches, const std::string& file) {
  if (is_forward_only(table)) {
    throw ConfigError(fmt::format("schedule file {} has no backward action: it is one of evaluation", file),
                      {.remedy = "write a BW, or a B and a W, for every F"});
  }
  if (static_cast<int>(table.ranks.size()) != ranks) {
    throw ConfigError(
        fmt::format("schedule file {} is for {} ranks; mesh.pp is {}", file, table.ranks.size(), ranks),
        {.remedy = fmt::format("set mesh.pp={}, or write a line for each of {} ranks", table.ranks.size(), ranks)});
  }
  if (table.num_microbatches != microbatches) {
    throw ConfigError(fmt::format("schedule file {} has {} microbatches; parallel.microbatches is {}", file,
                                  table.num_microbatches, microbatches),
                      {.remedy = fmt::format("set parallel.microbatches={}, or write actions of microbatches 0 to {}",
                                             table.num_microbatches, microbatches - 1)});
  }
}

// A file says it all; what is said besides must be the same.
Places file_places(const GraphSpec& graph, int ranks, int microbatches, const PipelineSettings& settings) {
  const std::string& file = settings.schedule;
  StageTable table = read_table(file);
  check_file(table, ranks, microbatches, file);
  const int stages = table.num_stages;
  Places places{stage_ranks(table)};
  check_coordinates(places.rank, ranks, "schedule file " + file);
  if (!settings.placement.empty() && settings.placement != places.rank) {
    throw ConfigError(fmt::format("parallel.placement is {}; schedule file {} has its stages on pp coordinates {}",
                                  fmt::join(settings.placement, ", "), file, fmt::join(places.rank, ", ")),
                      {.remedy = "leave parallel.placement out, or move the stages in the file"});
  }
  const AskedStages asked = asked_stages(settings);
  if (asked.count > 0 && asked.count != stages) {
    throw ConfigError(fmt::format("{} has {} stage{}; schedule file {} has {}", asked.key, asked.count,
                                  asked.count == 1 ? "" : "s", file, stages),
                      {.remedy = fmt::format("cut the model into {} stages, or set parallel.split=auto", stages)});
  }
  // One per rank is what a configuration says that leaves it out.
  if (settings.virtual_stages > 1 && std::int64_t{settings.virtual_stages} * ranks != stages) {
    throw ConfigError(fmt::format("parallel.virtual_stages is {}; schedule file {} has {} stages on {} ranks",
                                  settings.virtual_stages, file, stages, ranks),
                      {.remedy = "leave parallel.virtual_stages out"});
  }
  check_units(graph, stages, "schedule file " + file, settings);
  if (settings.memory.rank_bytes > 0) places.in_flight = stage_peaks(table);
  places.table = std::move(table);
  return places;
}

StageMap asked_split(const GraphSpec& graph, const PipelineSettings& settings, const std::vector<int>& rank = {}) {
  return said_of("parallel.split", [&] { return named_stages(graph, settings.split, rank); });
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
  std::vector<double> loads(static_cast<std::size_t>(map.num_ranks()), 0);
  for (std::size_t s = 0; s < map.units.size(); ++s) {
    for (const int unit : map.units[s]) {
      loads[static_cast<std::size_t>(map.rank[s])] += costs[static_cast<std::size_t>(unit)];
    }
  }
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  return sum > 0 ? std::ranges::max(loads) * static_cast<double>(loads.size()) / sum : 1;
}

// Stages on ranks of their own, whose queues the one rank runs in turns. Schedules that have more than one stage to a
// rank, and files, have no order for this: theirs is that of 1f1b.
Pipeline on_single_rank(const GraphSpec& graph, int microbatches, const PipelineSettings& settings,
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
  pipeline.table =
      stages == 1
          ? one_stage(microbatches)
          : on_one_rank(make_schedule(has_queues ? settings.schedule : "1f1b", pipeline.map, graph, microbatches),
                        stage_edges(pipeline.map, graph));
  pipeline.map = on_one_rank(std::move(pipeline.map));
  return pipeline;
}

Pipeline on_ranks(const GraphSpec& graph, int ranks, int microbatches, const PipelineSettings& settings,
                  const std::vector<double>& costs) {
  Places places = is_schedule_file(settings.schedule) ? file_places(graph, ranks, microbatches, settings)
                                                      : named_places(graph, ranks, microbatches, settings);
  Pipeline pipeline;
  if (settings.split.empty()) {
    SplitOptions options{.unit_costs = costs, .rank = places.rank, .memory = settings.memory};
    options.memory.in_flight = places.in_flight;
    pipeline.map = split_stages(graph, static_cast<int>(places.rank.size()), options).map;
  } else {
    pipeline.map = asked_split(graph, settings, places.rank);
  }
  pipeline.table = places.table ? std::move(*places.table) : said_of("parallel.schedule", [&] {
    return make_schedule(settings.schedule, pipeline.map, graph, microbatches);
  });
  return pipeline;
}

}  // namespace

std::vector<int> Pipeline::unit_ranks() const {
  auto ranks = unit_stages();
  for (int& stage : ranks) stage = map.rank[static_cast<std::size_t>(stage)];
  return ranks;
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

Pipeline make_pipeline(const GraphSpec& graph, int ranks, int microbatches, const PipelineSettings& asked) {
  if (ranks < 1) throw InternalError(fmt::format("a pipeline on {} ranks", ranks));
  const PipelineSettings settings = of_joined_units(asked, graph);
  if (!is_schedule_file(settings.schedule)) check_schedule_name(settings.schedule);
  const std::vector<double> costs = unit_costs(graph, settings.unit_costs);
  Pipeline pipeline = ranks == 1 ? on_single_rank(graph, microbatches, settings, costs)
                                 : on_ranks(graph, ranks, microbatches, settings, costs);
  pipeline.imbalance = imbalance_of(pipeline.map, costs);
  const bool of_file = ranks > 1 && is_schedule_file(settings.schedule);
  said_of(of_file ? "schedule file " + settings.schedule : "parallel.schedule=" + settings.schedule,
          [&] { validate(pipeline.table, pipeline.map, graph); });
  return pipeline;
}

}  // namespace orthant
