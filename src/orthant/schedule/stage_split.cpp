#include "orthant/schedule/stage_split.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/human.h"
#include "orthant/schedule/graph_edges.h"

namespace orthant {
namespace {

// Unit indices at which a stage may begin, and the number of units at the end. A loss and the last unit that feeds it
// stay together, with all between them; a head that is the loss, too, is on its own.
std::vector<std::size_t> cut_points(const GraphSpec& graph) {
  const GraphEdges edges(graph);
  std::vector<bool> may_begin(graph.units.size() + 1, true);
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (!graph.units[u].is_loss || graph.units[u].logits) continue;
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

// Sums over units before each cut point, so that a run of blocks costs a difference.
template <class Number>
std::vector<Number> sums_before(const std::vector<std::size_t>& points, const std::vector<Number>& per_unit) {
  std::vector<Number> sums(points.size(), 0);
  for (std::size_t i = 0; i + 1 < points.size(); ++i) {
    sums[i + 1] = sums[i];
    for (std::size_t u = points[i]; u < points[i + 1] && u < per_unit.size(); ++u) sums[i + 1] += per_unit[u];
  }
  return sums;
}

std::vector<double> unit_costs(const GraphSpec& graph, const SplitOptions& options) {
  std::vector<double> costs = options.unit_costs;
  if (costs.empty()) {
    for (const UnitSpec& unit : graph.units) {
      costs.push_back(unit.cost.forward_flops + unit.cost.input_flops + unit.cost.weight_flops);
    }
  }
  if (costs.size() != graph.units.size()) {
    throw InternalError(fmt::format("{} units have {} costs", graph.units.size(), costs.size()));
  }
  for (std::size_t u = 0; u < costs.size(); ++u) {
    if (std::isfinite(costs[u]) && costs[u] >= 0) continue;
    throw ConfigError(fmt::format("the cost of unit \"{}\" is {}", graph.units[u].name, costs[u]),
                      {.remedy = "give finite costs that are not negative"});
  }
  return costs;
}

// Cuts a row of blocks into stages; a cut is the block at which each stage begins.
class EvenCut {
 public:
  using Cut = std::vector<std::size_t>;

  EvenCut(const GraphSpec& graph, std::size_t stages, const SplitOptions& options)
      : points_(cut_points(graph)),
        stages_(stages),
        memory_(options.memory),
        cost_(sums_before(points_, unit_costs(graph, options))),
        state_(sums_before(points_, memory_.state_bytes)),
        kept_(sums_before(points_, memory_.kept_bytes)),
        sharers_(stages, 1) {
    const bool says_bytes = !memory_.state_bytes.empty() || !memory_.kept_bytes.empty();
    const CutSizes own(options.sizes == nullptr ? graph : GraphSpec());
    const CutSizes& sizes = options.sizes == nullptr ? own : *options.sizes;
    if (!says_bytes) held_ = sums_before(points_, sizes.held);
    add_received(sizes);
    for (std::size_t s = 0; s < options.pp_coordinates.size(); ++s) {
      sharers_.at(s) = std::ranges::count(options.pp_coordinates, options.pp_coordinates[s]);
    }
  }

  std::size_t num_blocks() const { return points_.size() - 1; }
  std::size_t first_unit(std::size_t block) const { return points_[block]; }
  double cost(std::size_t begin, std::size_t end) const { return cost_[end] - cost_[begin]; }

  std::int64_t bytes(std::size_t stage, std::size_t begin, std::size_t end) const {
    const std::int64_t in_flight = memory_.in_flight.empty() ? 1 : memory_.in_flight.at(stage);
    return state_[end] - state_[begin] + in_flight * (kept_[end] - kept_[begin]);
  }

  // Of the rank, if all that share it needed as much.
  std::int64_t rank_bytes(std::size_t stage, std::size_t begin, std::size_t end) const {
    return bytes(stage, begin, end) * sharers_[stage];
  }

  bool fits(std::size_t stage, std::size_t begin, std::size_t end) const {
    return memory_.rank_bytes == 0 || rank_bytes(stage, begin, end) <= memory_.rank_bytes;
  }

  // By time, then memory, then traffic: see split_stages(). Nothing when no cut fits.
  std::optional<Cut> even() const {
    const Table heaviest =
        best(within_reach(), [&](const Score& left, std::size_t stage, std::size_t begin, std::size_t end) {
          return fits(stage, begin, end) ? Score{std::max(left[0], cost(begin, end)), 0, 0} : kNever;
        });
    if (heaviest.scores.back().back() == kNever) return std::nullopt;
    const double limit = heaviest.scores.back().back()[0] * (1 + 1e-9);  // sums of the same costs may differ by as much
    const Table fullest = best(limit, [&](const Score& left, std::size_t stage, std::size_t begin, std::size_t end) {
      if (!fits(stage, begin, end)) return kNever;
      return Score{left[0] + squared_share(begin, end), std::max(left[1], tie_bytes(stage, begin, end)), 0};
    });
    const double room = fullest.scores.back().back()[1];
    return cut_of(best(limit, [&](const Score& left, std::size_t stage, std::size_t begin, std::size_t end) {
      if (!fits(stage, begin, end) || tie_bytes(stage, begin, end) > room) return kNever;
      const auto count = static_cast<double>(points_[end] - points_[begin]);
      return Score{left[0] + squared_share(begin, end), left[1] + received_bytes(begin, end), left[2] + count * count};
    }));
  }

  // The cut whose neediest rank needs least.
  Cut smallest() const {
    return cut_of(best(kNever[0], [&](const Score& left, std::size_t stage, std::size_t begin, std::size_t end) {
      return Score{std::max(left[0], static_cast<double>(rank_bytes(stage, begin, end))), 0, 0};
    }));
  }

 private:
  // A stage that begins at some block and ends at this one or later receives so many bytes, ascending.
  using Received = std::pair<std::size_t, std::int64_t>;
  using Score = std::array<double, 3>;  // the first that differs decides
  static constexpr Score kNever = {std::numeric_limits<double>::infinity(), 0, 0};

  // [stages used][blocks used]: the best score, and where the last of the stages begins.
  struct Table {
    std::vector<std::vector<Score>> scores;
    std::vector<std::vector<std::size_t>> begins;
  };

  // Of the stage's share of the cost, in whole millionths of the mean, so that equal sums are equal numbers. Where
  // nothing costs anything, units count.
  double squared_share(std::size_t begin, std::size_t end) const {
    const bool costs = cost_.back() > 0;
    const double own = costs ? cost(begin, end) : static_cast<double>(points_[end] - points_[begin]);
    const double mean = (costs ? cost_.back() : static_cast<double>(points_.back())) / static_cast<double>(stages_);
    const double share = std::round(own / mean * (1 << 20));
    return share * share;
  }

  double tie_bytes(std::size_t stage, std::size_t begin, std::size_t end) const {
    if (held_.empty()) return static_cast<double>(rank_bytes(stage, begin, end));
    return static_cast<double>((held_[end] - held_[begin]) * sharers_[stage]);
  }

  // A value travels once to each stage with units that read it.
  void add_received(const CutSizes& sizes) {
    const auto block_after = [&](int unit) {  // the first that begins behind the unit
      const auto place = std::ranges::upper_bound(points_, static_cast<std::size_t>(unit));
      return static_cast<std::size_t>(place - points_.begin());
    };
    received_.resize(points_.size());
    for (const auto& [producer, consumers, bytes] : sizes.edges) {
      const std::size_t last = block_after(consumers.back());
      for (std::size_t begin = block_after(producer); begin < last; ++begin) {
        const auto reader = std::ranges::lower_bound(consumers, static_cast<int>(points_[begin]));
        received_[begin].emplace_back(block_after(*reader), bytes);
      }
    }
    for (auto& values : received_) {
      std::ranges::sort(values);
      for (std::size_t i = 1; i < values.size(); ++i) values[i].second += values[i - 1].second;
    }
  }

  double received_bytes(std::size_t begin, std::size_t end) const {
    const auto& values = received_[begin];
    const auto beyond = std::ranges::upper_bound(values, end, {}, &Received::first);
    return beyond == values.begin() ? 0 : static_cast<double>(std::prev(beyond)->second);
  }

  // No cut needs a heavier stage: whoever fills stages up to the mean goes beyond it by less than one block. Without
  // end where memory may ask for one.
  double within_reach() const {
    if (memory_.rank_bytes > 0) return kNever[0];
    double heaviest = 0;
    for (std::size_t block = 0; block < num_blocks(); ++block) heaviest = std::max(heaviest, cost(block, block + 1));
    return (cost_.back() / static_cast<double>(stages_) + heaviest) * (1 + 1e-9);
  }

  // Of stages that cost `most` or less.
  template <class Extend>
  Table best(double most, const Extend& extend) const {
    const std::size_t size = points_.size();
    Table table{{stages_ + 1, std::vector<Score>(size, kNever)}, {stages_ + 1, std::vector<std::size_t>(size, 0)}};
    table.scores[0][0] = {0, 0, 0};
    for (std::size_t s = 1; s <= stages_; ++s) {
      std::size_t first = s - 1;
      for (std::size_t end = s; end < size; ++end) {
        while (first < end && cost(first, end) > most) ++first;
        for (std::size_t begin = first; begin < end; ++begin) {
          if (table.scores[s - 1][begin] == kNever) continue;
          const Score score = extend(table.scores[s - 1][begin], s - 1, begin, end);
          if (score < table.scores[s][end]) {
            table.scores[s][end] = score;
            table.begins[s][end] = begin;
          }
        }
      }
    }
    return table;
  }

  Cut cut_of(const Table& table) const {
    Cut begins(stages_ + 1, num_blocks());
    for (std::size_t s = stages_; s-- > 0;) begins[s] = table.begins[s + 1][begins[s + 1]];
    return begins;
  }

  std::vector<std::size_t> points_;
  std::size_t stages_;
  const MemoryBound& memory_;
  std::vector<double> cost_;  // these three: sums over the blocks before each
  std::vector<std::int64_t> state_;
  std::vector<std::int64_t> kept_;
  std::vector<std::int64_t> held_;  // likewise, of CutSizes; none where memory_ says bytes
  std::vector<std::vector<Received>> received_;
  std::vector<std::int64_t> sharers_;  // per stage: stages on its pp coordinate
};

void check_options(const GraphSpec& graph, int stages, const SplitOptions& options) {
  const auto& [bound, state, kept, in_flight] = options.memory;
  const auto require = [](bool good, std::string_view what) {
    if (!good) throw InternalError(fmt::format("a stage split with {}", what));
  };
  require(options.pp_coordinates.empty() || static_cast<int>(options.pp_coordinates.size()) == stages,
          "other than one pp coordinate per stage");
  require(in_flight.empty() || static_cast<int>(in_flight.size()) == stages, "other than one count per stage");
  require(kept.empty() || kept.size() == graph.units.size(), "other than one activation size per unit");
  require(state.empty() || state.size() == graph.units.size(), "other than one state size per unit");
  require(bound >= 0, "a negative bound");
}

// Rounded up to what six digits behind the point can say.
double gib_above(std::int64_t bytes) {
  return std::ceil(static_cast<double>(bytes) / (1 << 30) * 1e6) / 1e6;
}

[[noreturn]] void refuse_memory(const GraphSpec& graph, const EvenCut& cutter, std::size_t stages,
                                const MemoryBound& memory) {
  const EvenCut::Cut cut = cutter.smallest();
  std::size_t worst = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    if (cutter.rank_bytes(s, cut[s], cut[s + 1]) > cutter.rank_bytes(worst, cut[worst], cut[worst + 1])) worst = s;
  }
  const std::size_t first = cutter.first_unit(cut[worst]);
  const std::size_t last = cutter.first_unit(cut[worst + 1]) - 1;
  const std::int64_t needed = cutter.rank_bytes(worst, cut[worst], cut[worst + 1]);
  const std::string units =
      first == last ? fmt::format("unit \"{}\"", graph.units[first].name)
                    : fmt::format("units \"{}\" to \"{}\"", graph.units[first].name, graph.units[last].name);
  throw ConfigError(
      fmt::format("graph \"{}\" cannot be cut into {} stages that fit into {} per rank: in the cut that comes nearest, "
                  "stage {} ({}, {} microbatches in flight) needs {}",
                  graph.name, stages, format_bytes(memory.rank_bytes), worst, units,
                  memory.in_flight.empty() ? 1 : memory.in_flight[worst], format_bytes(needed)),
      {.remedy = fmt::format("set parallel.split_memory_gb={:.6f} or more, more stages, recompute, or a schedule that "
                             "keeps fewer microbatches",
                             gib_above(needed))});
}

}  // namespace

CutSizes::CutSizes(const GraphSpec& graph) {
  for (const UnitSpec& unit : graph.units) {
    auto& elements = held.emplace_back(0);
    for (const auto& parameter : unit.parameters) elements += num_elements(parameter.shape);
    for (const auto& name : unit.borrowed) elements += num_elements(graph.parameter(name).shape);
  }
  const GraphEdges graph_edges(graph);
  for (std::size_t v = 0; v < graph_edges.consumers.size(); ++v) {
    const ValueSpec& value = graph.values[v];
    const auto bytes = num_elements(value.shape) * bytes_of(value.dtype);
    if (graph_edges.consumers[v].empty()) continue;
    edges.push_back({graph_edges.producer[v], graph_edges.consumers[v], value.differentiable ? 2 * bytes : bytes});
  }
}

int most_stages(const GraphSpec& graph) {
  return static_cast<int>(cut_points(graph).size()) - 1;
}

StageSplit split_stages(const GraphSpec& graph, int stages, const SplitOptions& options) {
  check_options(graph, stages, options);
  const auto num_stages = static_cast<std::size_t>(std::max(stages, 0));
  const EvenCut cutter(graph, num_stages, options);
  if (num_stages < 1 || num_stages > cutter.num_blocks()) {
    throw ConfigError(
        fmt::format("graph \"{}\" cannot be cut into {} stages: its {} units form {} blocks (a loss stays "
                    "with the unit that feeds it), and every stage needs one",
                    graph.name, stages, graph.units.size(), cutter.num_blocks()),
        {.remedy = fmt::format("set 1 to {} stages", cutter.num_blocks())});
  }
  const auto cut = cutter.even();
  if (!cut) refuse_memory(graph, cutter, num_stages, options.memory);
  StageSplit split;
  for (std::size_t s = 0; s < num_stages; ++s) {
    const std::size_t begin = (*cut)[s];
    const std::size_t end = (*cut)[s + 1];
    auto& units = split.map.units.emplace_back(cutter.first_unit(end) - cutter.first_unit(begin));
    std::iota(units.begin(), units.end(), static_cast<int>(cutter.first_unit(begin)));
    split.map.pp_coordinates.push_back(options.pp_coordinates.empty() ? static_cast<int>(s)
                                                                      : options.pp_coordinates[s]);
    split.costs.push_back(cutter.cost(begin, end));
    split.memory_bytes.push_back(cutter.bytes(s, begin, end));
  }
  const double sum = std::accumulate(split.costs.begin(), split.costs.end(), 0.0);
  if (sum > 0) split.imbalance = std::ranges::max(split.costs) * static_cast<double>(num_stages) / sum;
  return split;
}

}  // namespace orthant
