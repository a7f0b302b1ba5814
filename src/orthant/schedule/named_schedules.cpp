#include "orthant/schedule/named_schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/shared_pp_coordinates.h"

namespace orthant {
namespace {

// Larger tables are taken for a mistake.
constexpr std::int64_t kMaxPasses = 1'000'000;

void check_size(std::string_view name, int pp_degree, int stages_per_pp, int microbatches) {
  if (pp_degree < 1 || microbatches < 1) {
    throw ConfigError(
        fmt::format("schedule {} of {} pp coordinates and {} microbatches", name, pp_degree, microbatches),
        {.remedy = "set at least one pp coordinate and one microbatch"});
  }
  // Each factor first, so that the product cannot overflow.
  const bool each_fits = std::max({pp_degree, stages_per_pp, microbatches}) <= kMaxPasses;
  if (each_fits && std::int64_t{pp_degree} * stages_per_pp <= kMaxPasses &&
      std::int64_t{pp_degree} * stages_per_pp * microbatches <= kMaxPasses) {
    return;
  }
  throw ConfigError(
      fmt::format("schedule {} of {} pp coordinates with {} stages each and {} microbatches has more than {} "
                  "forward passes of stages",
                  name, pp_degree, stages_per_pp, microbatches, kMaxPasses),
      {.remedy = "set fewer pp coordinates, stages or microbatches"});
}

// One queue per stage, for schedules that do not care where stages lie.
StageTable stage_queues(std::string_view name, const StageEdges& edges, int microbatches) {
  if (name == "gpipe") return gpipe(edges.num_stages(), microbatches);
  if (name == "zbh1") return zbh1(edges, microbatches);
  return one_forward_one_backward(edges, microbatches);
}

bool is_looped(std::string_view name) {
  return name == "interleaved" || name == "zbv";
}

StageTable looped_table(std::string_view name, int pp_degree, int stages_per_pp, int microbatches) {
  return name == "zbv" ? zbv(pp_degree, microbatches) : interleaved(pp_degree, stages_per_pp, microbatches);
}

// A stage on a pp coordinate of its own keeps its queue as it is.
StageTable place(const StageTable& queues, const StageMap& map, const GraphSpec& graph, const StageEdges& edges) {
  if (map.pp_degree() < map.num_stages())
    return share_pp_coordinates(queues, map.pp_coordinates, edges, flop_costs(map, graph));
  StageTable table = queues;
  for (std::size_t s = 0; s < map.pp_coordinates.size(); ++s)
    table.actions[static_cast<std::size_t>(map.pp_coordinates[s])] = queues.actions[s];
  return table;
}

// How many stages each pp coordinate must have under a looped schedule; ConfigError when the map does not give them so.
int check_placement(std::string_view name, const StageMap& map) {
  const int pp_degree = map.pp_degree();
  const int stages_per_pp = map.num_stages() / pp_degree;
  const int minimum = virtual_stages(name);
  const bool possible =
      map.num_stages() % pp_degree == 0 && stages_per_pp >= minimum && (name != "zbv" || stages_per_pp == minimum);
  if (!possible) {
    throw ConfigError(
        fmt::format("schedule {} on {} pp coordinates cannot have {} stages", name, pp_degree, map.num_stages()),
        {.remedy = name == "zbv" ? fmt::format("cut the model into {} stages", 2 * pp_degree)
                                 : fmt::format("cut the model into {}, {} or another multiple of {} stages",
                                               2 * pp_degree, 3 * pp_degree, pp_degree)});
  }
  const std::vector<int> wanted = schedule_placement(name, pp_degree, stages_per_pp);
  if (map.pp_coordinates != wanted) {
    throw ConfigError(fmt::format("schedule {} cannot have its stages on pp coordinates {}", name,
                                  fmt::join(map.pp_coordinates, ", ")),
                      {.remedy = fmt::format("leave the placement out, or set it to {}", fmt::join(wanted, ", "))});
  }
  return stages_per_pp;
}

}  // namespace

const std::vector<std::string>& schedule_names() {
  static const std::vector<std::string> kNames = {"gpipe", "1f1b", "interleaved", "zbh1", "zbv"};
  return kNames;
}

void check_schedule_name(std::string_view name) {
  const auto& names = schedule_names();
  if (std::ranges::find(names, name) != names.end()) return;
  throw ConfigError(fmt::format("unknown schedule \"{}\"", name), {.remedy = did_you_mean(name, names)});
}

int virtual_stages(std::string_view name, int asked) {
  check_schedule_name(name);
  const int usual = is_looped(name) ? 2 : 1;
  if (asked == 0 || asked == usual || (name == "interleaved" && asked > usual)) return asked == 0 ? usual : asked;
  throw ConfigError(
      fmt::format("schedule {} with {} stage{} per pp coordinate", name, asked, asked == 1 ? "" : "s"),
      {.remedy = fmt::format("set {}{} virtual stage{}, or the schedule {}", name == "interleaved" ? "at least " : "",
                             usual, usual == 1 ? "" : "s", asked > 1 ? "interleaved" : "1f1b")});
}

std::vector<int> schedule_placement(std::string_view name, int pp_degree, int asked_virtual_stages) {
  const int stages = pp_degree * virtual_stages(name, asked_virtual_stages);
  std::vector<int> pp_coordinates;
  for (int s = 0; s < stages; ++s)
    pp_coordinates.push_back(name == "zbv" && s >= pp_degree ? stages - 1 - s : s % pp_degree);
  return pp_coordinates;
}

Schedule make_schedule(std::string_view name, int pp_degree, int asked_virtual_stages, int microbatches) {
  const int stages_per_pp = virtual_stages(name, asked_virtual_stages);
  check_size(name, pp_degree, stages_per_pp, microbatches);
  return {is_looped(name) ? looped_table(name, pp_degree, stages_per_pp, microbatches)
                          : stage_queues(name, chain_edges(pp_degree), microbatches),
          schedule_placement(name, pp_degree, stages_per_pp)};
}

StageTable make_schedule(std::string_view name, const StageMap& map, const GraphSpec& graph, int microbatches) {
  check_schedule_name(name);
  if (is_looped(name)) {
    const int stages_per_pp = check_placement(name, map);
    check_size(name, map.pp_degree(), stages_per_pp, microbatches);
    return looped_table(name, map.pp_degree(), stages_per_pp, microbatches);
  }
  check_size(name, map.num_stages(), 1, microbatches);
  const StageEdges edges = stage_edges(map, graph);
  return place(stage_queues(name, edges, microbatches), map, graph, edges);
}

StageTable make_forward_schedule(const StageMap& map, const GraphSpec& graph, int microbatches) {
  check_size("forward", map.num_stages(), 1, microbatches);
  return place(forward_only(map.num_stages(), microbatches), map, graph, stage_edges(map, graph));
}

}  // namespace orthant
