#include "orthant/schedule/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/schedule/graph_edges.h"

namespace orthant {
namespace {

// Unit indices at which a stage may begin, and the number of units at the end. A loss and the last unit that feeds it
// stay together, with all between them.
std::vector<std::size_t> cut_points(const GraphEdges& edges, const GraphSpec& graph) {
  std::vector<bool> may_begin(graph.units.size() + 1, true);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (!graph.units[u].is_loss) continue;
    int head = -1;
    for (const int v : edges.inputs[u]) head = std::max(head, edges.producer[static_cast<std::size_t>(v)]);
    if (head < 0) continue;
    for (std::size_t i = static_cast<std::size_t>(head) + 1; i <= u; ++i) may_begin[i] = false;
  }
  std::vector<std::size_t> points;
  for (std::size_t i = 0; i < may_begin.size(); ++i) {
    if (may_begin[i]) points.push_back(i);
  }
  return points;
}

double flops(const UnitSpec& unit) {
  return unit.cost.forward_flops + unit.cost.input_flops + unit.cost.weight_flops;
}

// Cuts a row of blocks into stages. `weight[i]` and `count[i]` are the sums over the blocks before i.
class EvenCut {
 public:
  EvenCut(std::vector<double> weight, std::vector<double> count, std::size_t stages)
      : weight_(std::move(weight)), count_(std::move(count)), stages_(stages) {}

  // The block at which each stage begins: first the lightest heaviest stage, then among such cuts the smallest sum of
  // squared weights, then of squared numbers of units.
  std::vector<std::size_t> begins() const {
    const double limit =
        best([](const Score& left, double weight, double) { return Score{std::max(left.first, weight), 0}; })
            .scores.back()
            .back()
            .first;
    const Table table = best([&](const Score& left, double weight, double count) {
      if (weight > limit) return kNever;
      return Score{left.first + weight * weight, left.second + count * count};
    });
    std::vector<std::size_t> begins(stages_);
    std::size_t end = weight_.size() - 1;
    for (std::size_t s = stages_; s-- > 0;) end = begins[s] = table.begins[s + 1][end];
    return begins;
  }

 private:
  using Score = std::pair<double, double>;
  static constexpr Score kNever = {std::numeric_limits<double>::infinity(), 0};

  // [stages used][blocks used]: the best score, and where the last of the stages begins.
  struct Table {
    std::vector<std::vector<Score>> scores;
    std::vector<std::vector<std::size_t>> begins;
  };

  template <class Extend>
  Table best(const Extend& extend) const {
    const std::size_t size = weight_.size();
    Table table{{stages_ + 1, std::vector<Score>(size, kNever)}, {stages_ + 1, std::vector<std::size_t>(size, 0)}};
    table.scores[0][0] = {0, 0};
    for (std::size_t s = 1; s <= stages_; ++s) {
      for (std::size_t end = s; end < size; ++end) {
        for (std::size_t begin = s - 1; begin < end; ++begin) {
          if (table.scores[s - 1][begin] == kNever) continue;
          const Score score =
              extend(table.scores[s - 1][begin], weight_[end] - weight_[begin], count_[end] - count_[begin]);
          if (score < table.scores[s][end]) {
            table.scores[s][end] = score;
            table.begins[s][end] = begin;
          }
        }
      }
    }
    return table;
  }

  std::vector<double> weight_;
  std::vector<double> count_;
  std::size_t stages_;
};

std::vector<int> stage_of_units(const StageMap& map, const GraphSpec& graph) {
  std::vector<int> stage_of(graph.units.size(), -1);
  for (int s = 0; s < map.num_stages(); ++s) {
    for (const int unit : map.units[static_cast<std::size_t>(s)]) {
      if (unit < 0 || unit >= static_cast<int>(graph.units.size())) {
        throw InternalError(fmt::format("stage {} names unit {} of {}", s, unit, graph.units.size()));
      }
      int& stage = stage_of[static_cast<std::size_t>(unit)];
      if (stage >= 0) {
        throw ConfigError(fmt::format("unit \"{}\" is in stage {} and in stage {}",
                                      graph.units[static_cast<std::size_t>(unit)].name, stage, s),
                          {.remedy = "name every unit once"});
      }
      stage = s;
    }
  }
  std::vector<std::string> missing;
  for (std::size_t u = 0; u < stage_of.size(); ++u) {
    if (stage_of[u] < 0) missing.push_back(graph.units[u].name);
  }
  if (!missing.empty()) {
    throw ConfigError(fmt::format("no stage holds {}", fmt::join(missing, ", ")),
                      {.remedy = "name every unit of the graph in some stage"});
  }
  return stage_of;
}

void check_edges(const GraphSpec& graph, const std::vector<int>& stage_of) {
  const GraphEdges edges(graph);
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const auto producer = static_cast<std::size_t>(edges.producer[v]);
    for (const int unit : edges.consumers[v]) {
      const auto consumer = static_cast<std::size_t>(unit);
      if (stage_of[producer] <= stage_of[consumer]) continue;
      throw ConfigError(
          fmt::format("unit \"{}\" in stage {} reads \"{}\", which unit \"{}\" writes in the later stage {}",
                      graph.units[consumer].name, stage_of[consumer], graph.values[v].name, graph.units[producer].name,
                      stage_of[producer]),
          {.remedy = fmt::format("move \"{}\" to stage {} or later, or \"{}\" to stage {} or earlier",
                                 graph.units[consumer].name, stage_of[producer], graph.units[producer].name,
                                 stage_of[consumer])});
    }
  }
}

void check_ranks(const StageMap& map) {
  if (map.rank.size() != map.units.size()) {
    throw ConfigError(fmt::format("{} stages have {} pp coordinates", map.units.size(), map.rank.size()),
                      {.remedy = "give one pp coordinate per stage"});
  }
  for (int rank = 0; rank < map.num_ranks(); ++rank) {
    if (std::ranges::find(map.rank, rank) == map.rank.end()) {
      throw ConfigError(fmt::format("pp coordinate {} of {} has no stage", rank, map.num_ranks()),
                        {.remedy = "use every pp coordinate from 0 up to the largest"});
    }
  }
  for (std::size_t s = 0; s < map.rank.size(); ++s) {
    if (map.rank[s] < 0) {
      throw ConfigError(fmt::format("stage {} is on pp coordinate {}", s, map.rank[s]),
                        {.remedy = "count pp coordinates from 0"});
    }
  }
}

}  // namespace

int StageMap::num_ranks() const {
  return rank.empty() ? 0 : *std::ranges::max_element(rank) + 1;
}

StageMap even_stages(const GraphSpec& graph, int stages) {
  const std::vector<std::size_t> points = cut_points(GraphEdges(graph), graph);
  const std::size_t blocks = points.size() - 1;
  if (stages < 1 || static_cast<std::size_t>(stages) > blocks) {
    throw ConfigError(
        fmt::format("graph \"{}\" cannot be cut into {} stages: its {} units form {} blocks (a loss stays "
                    "with the unit that feeds it), and every stage needs one",
                    graph.name, stages, graph.units.size(), blocks),
        {.remedy = fmt::format("set 1 to {} stages", blocks)});
  }
  std::vector<double> weight(points.size(), 0);
  std::vector<double> count(points.size(), 0);
  for (std::size_t i = 0; i < blocks; ++i) {
    weight[i + 1] = weight[i];
    for (std::size_t u = points[i]; u < points[i + 1]; ++u) weight[i + 1] += flops(graph.units[u]);
    count[i + 1] = static_cast<double>(points[i + 1]);
  }
  std::vector<std::size_t> begins = EvenCut(weight, count, static_cast<std::size_t>(stages)).begins();
  begins.push_back(blocks);
  StageMap map;
  for (int s = 0; s < stages; ++s) {
    const auto stage = static_cast<std::size_t>(s);
    auto& units = map.units.emplace_back();
    for (std::size_t u = points[begins[stage]]; u < points[begins[stage + 1]]; ++u) {
      units.push_back(static_cast<int>(u));
    }
    map.rank.push_back(s);
  }
  return map;
}

StageMap named_stages(const GraphSpec& graph, const std::vector<std::vector<std::string>>& names,
                      const std::vector<int>& ranks) {
  std::vector<std::string> known;
  for (const UnitSpec& unit : graph.units) known.push_back(unit.name);
  StageMap map;
  map.rank = ranks;
  for (std::size_t s = 0; s < names.size(); ++s) {
    auto& units = map.units.emplace_back();
    for (const std::string& name : names[s]) {
      const auto found = std::ranges::find(known, name);
      if (found == known.end()) {
        throw ConfigError(fmt::format("stage {} names \"{}\", which is no unit of graph \"{}\"", s, name, graph.name),
                          {.remedy = did_you_mean(name, known)});
      }
      units.push_back(static_cast<int>(found - known.begin()));
    }
    std::ranges::sort(units);
    if (ranks.empty()) map.rank.push_back(static_cast<int>(s));
  }
  check_stages(map, graph);
  return map;
}

StageMap on_one_rank(StageMap map) {
  std::ranges::fill(map.rank, 0);
  return map;
}

void check_stages(const StageMap& map, const GraphSpec& graph) {
  check_ranks(map);
  for (std::size_t s = 0; s < map.units.size(); ++s) {
    if (map.units[s].empty()) {
      throw ConfigError(fmt::format("stage {} of {} has no units", s, map.units.size()),
                        {.remedy = "name at least one unit per stage, or use fewer stages"});
    }
    if (!std::ranges::is_sorted(map.units[s])) {
      throw InternalError(fmt::format("the units of stage {} are not ascending: {}", s, fmt::join(map.units[s], ", ")));
    }
  }
  check_edges(graph, stage_of_units(map, graph));
}

}  // namespace orthant
