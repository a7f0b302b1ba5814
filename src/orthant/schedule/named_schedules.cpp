#include "orthant/schedule/named_schedules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/shared_ranks.h"

namespace orthant {
namespace {

// Larger tables are taken for a mistake.
constexpr std::int64_t kMaxPasses = 1'000'000;

void check_size(std::string_view name, int ranks, int stages_per_rank, int microbatches) {
  if (ranks < 1 || microbatches < 1) {
    throw ConfigError(fmt::format("schedule {} of {} ranks and {} microbatches", name, ranks, microbatches),
                      {.remedy = "set at least one rank and one microbatch"});
  }
  // Each factor first, so that the product cannot overflow.
  const bool each_fits = std::max({ranks, stages_per_rank, microbatches}) <= kMaxPasses;
  if (each_fits && std::int64_t{ranks} * stages_per_rank <= kMaxPasses &&
      std::int64_t{ranks} * stages_per_rank * microbatches <= kMaxPasses) {
    return;
  }
  throw ConfigError(fmt::format("schedule {} of {} ranks with {} stages each and {} microbatches has more than {} "
                                "forward passes of stages",
                                name, ranks, stages_per_rank, microbatches, kMaxPasses),
                    {.remedy = "set fewer ranks, stages or microbatches"});
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

StageTable looped_table(std::string_view name, int ranks, int stages_per_rank, int microbatches) {
  return name == "zbv" ? zbv(ranks, microbatches) : interleaved(ranks, stages_per_rank, microbatches);
}

// A stage on a rank of its own keeps its queue as it is.
StageTable place(const StageTable& queues, const StageMap& map, const GraphSpec& graph, const StageEdges& edges) {
  if (map.num_ranks() < map.num_stages()) return share_ranks(queues, map.rank, edges, flop_costs(map, graph));
  StageTable table = queues;
  for (std::size_t s = 0; s < map.rank.size(); ++s)
    table.ranks[static_cast<std::size_t>(map.rank[s])] = queues.ranks[s];
  return table;
}

// How many stages each rank must have under a looped schedule; ConfigError when the map does not give them so.
int check_placement(std::string_view name, const StageMap& map) {
  const int ranks = map.num_ranks();
  const int per_rank = map.num_stages() / ranks;
  const int minimum = virtual_stages(name);
  const bool possible = map.num_stages() % ranks == 0 && per_rank >= minimum && (name != "zbv" || per_rank == minimum);
  if (!possible) {
    throw ConfigError(
        fmt::format("schedule {} on {} ranks cannot have {} stages", name, ranks, map.num_stages()),
        {.remedy = name == "zbv" ? fmt::format("cut the model into {} stages", 2 * ranks)
                                 : fmt::format("cut the model into {}, {} or another multiple of {} stages", 2 * ranks,
                                               3 * ranks, ranks)});
  }
  const std::vector<int> wanted = schedule_placement(name, ranks, per_rank);
  if (map.rank != wanted) {
    throw ConfigError(
        fmt::format("schedule {} cannot have its stages on pp coordinates {}", name, fmt::join(map.rank, ", ")),
        {.remedy = fmt::format("leave the placement out, or set it to {}", fmt::join(wanted, ", "))});
  }
  return per_rank;
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
  const int own = is_looped(name) ? 2 : 1;
  if (asked == 0 || asked == own || (name == "interleaved" && asked > own)) return asked == 0 ? own : asked;
  throw ConfigError(
      fmt::format("schedule {} with {} stage{} per rank", name, asked, asked == 1 ? "" : "s"),
      {.remedy = fmt::format("set {}{} virtual stage{}, or the schedule {}", name == "interleaved" ? "at least " : "",
                             own, own == 1 ? "" : "s", asked > 1 ? "interleaved" : "1f1b")});
}

std::vector<int> schedule_placement(std::string_view name, int ranks, int asked_virtual_stages) {
  const int stages = ranks * virtual_stages(name, asked_virtual_stages);
  std::vector<int> rank;
  for (int s = 0; s < stages; ++s) rank.push_back(name == "zbv" && s >= ranks ? stages - 1 - s : s % ranks);
  return rank;
}

Schedule make_schedule(std::string_view name, int ranks, int asked_virtual_stages, int microbatches) {
  const int per_rank = virtual_stages(name, asked_virtual_stages);
  check_size(name, ranks, per_rank, microbatches);
  return {is_looped(name) ? looped_table(name, ranks, per_rank, microbatches)
                          : stage_queues(name, chain_edges(ranks), microbatches),
          schedule_placement(name, ranks, per_rank)};
}

StageTable make_schedule(std::string_view name, const StageMap& map, const GraphSpec& graph, int microbatches) {
  check_schedule_name(name);
  if (is_looped(name)) {
    const int per_rank = check_placement(name, map);
    check_size(name, map.num_ranks(), per_rank, microbatches);
    return looped_table(name, map.num_ranks(), per_rank, microbatches);
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
