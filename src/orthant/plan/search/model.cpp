#include "orthant/plan/search/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/graph/backward.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/models/family.h"
#include "orthant/plan/estimate/rank_step.h"
#include "orthant/schedule/stage_split.h"

namespace orthant {
namespace {

constexpr std::int64_t kShortLayers = 3;  // a first, one in the middle, a last

// Frozen parameters make layers differ.
ModelConfig short_config(ModelConfig config) {
  if (frozen_patterns(config).empty()) config.family().shorten(config, kShortLayers);
  return config;
}

// "primary.layers." and 7; -1 for a name that ends in no number.
std::pair<std::string, int> numbered(const std::string& name) {
  const std::size_t dot = name.rfind('.');
  int number = -1;
  if (dot == std::string::npos) return {name, number};
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + dot + 1, end, number);
  if (error != std::errc() || stop != end) return {name, -1};
  return {name.substr(0, dot + 1), number};
}

// Units of each run of numbered ones, by stem.
std::map<std::string, int> runs_of(const GraphSpec& graph) {
  std::map<std::string, int> runs;
  for (const UnitSpec& unit : graph.units) {
    const auto [stem, number] = numbered(unit.name);
    if (number >= 0) ++runs[stem];
  }
  return runs;
}

// Per unit of the whole graph its like in the short one: the first, the last, or one in the middle.
std::vector<int> likenesses(const GraphSpec& whole, const GraphSpec& part) {
  const auto all = runs_of(whole);
  const auto few = runs_of(part);
  std::vector<int> like;
  for (const UnitSpec& unit : whole.units) {
    auto [stem, number] = numbered(unit.name);
    if (number >= 0) {
      const int after = all.at(stem) - 1 - number;  // units behind it
      const int last = few.at(stem) - 1;
      stem += std::to_string(after == 0 ? last : std::min(number, std::max(last - 1, 0)));
    }
    like.push_back(part.unit_index(stem));
  }
  return like;
}

std::vector<std::pair<int, int>> lenders_of(const GraphSpec& graph) {
  std::vector<std::pair<int, int>> lenders;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const auto& borrowed = graph.units[u].borrowed;
    if (!borrowed.empty()) lenders.emplace_back(static_cast<int>(u), graph.owner(borrowed.front()));
  }
  return lenders;
}

const ModelConfig& trained_config(const PlanModel& model) {
  if (model.config) return *model.config;
  throw ConfigError(fmt::format("model {} exists on paper only: `orthant train` has no such kind", model.name),
                    {.remedy = "price a mesh of it with `orthant estimate --stack megatron`, or plan for a model that "
                               "can be trained"});
}

// Units by name, and of their values what losses read: a loss stays with the unit that feeds it.
GraphSpec outline_of(const GraphSpec& graph) {
  GraphSpec outline;
  outline.name = graph.name;
  for (const UnitSpec& unit : graph.units) {
    UnitSpec& drawn = outline.units.emplace_back();
    drawn.name = unit.name;
    drawn.is_loss = unit.is_loss;
    drawn.logits = unit.logits;
    if (unit.is_loss) drawn.inputs = unit.inputs;
  }
  for (const UnitSpec& loss : graph.units) {
    for (const std::string& input : loss.is_loss ? loss.inputs : std::vector<std::string>()) {
      const int writer = graph.producer(input);
      (writer < 0 ? outline.batch_fields : outline.values).push_back(graph.value(input));
      if (writer >= 0) outline.units[static_cast<std::size_t>(writer)].outputs.push_back(input);
    }
  }
  return outline;
}

bool reads_neighbours_only(const GraphSpec& graph) {
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    for (const std::string& input : graph.units[u].inputs) {
      const int writer = graph.producer(input);
      if (writer >= 0 && writer + 1 != static_cast<int>(u)) return false;
    }
  }
  return true;
}

}  // namespace

SearchModel::SearchModel(const PlanModel& model, std::int64_t sequence, DType compute, bool on_host)
    : config_(trained_config(model)), short_config_(short_config(config_)) {
  const WorkSize work{.rows = 1, .sequence = sequence, .compute = compute, .programs = programs()};
  PlanSettings settings;
  settings.on_host = on_host;
  graph_ = trained_graph(build_spec(config_, work), settings, programs());
  stands_for_ = likenesses(graph_, trained_graph(build_spec(short_config_, work), settings, programs()));
  outline_ = outline_of(graph_);
  lenders_ = lenders_of(graph_);
  most_stages_ = orthant::most_stages(graph_);
  for (const UnitSpec& unit : graph_.units) num_experts_ = std::max(num_experts_, unit.num_experts());
  is_chain_ = reads_neighbours_only(graph_);
}

double SearchModel::row_bytes() const {
  double bytes = 0;
  for (const ValueSpec& field : graph_.batch_fields) {
    bytes += static_cast<double>(num_elements(field.shape) * bytes_of(field.dtype));
  }
  return bytes;
}

bool SearchModel::fits_tensor(int tp) const {
  try {
    resolved_graph(build_spec(short_config_, {.rows = 1, .sequence = 1, .programs = programs()}), {}, tp);
  } catch (const ConfigError&) {
    return false;
  }
  return true;
}

GraphSpec SearchModel::resolved(const PlanSettings& settings) const {
  const int tp = settings.mesh.degree(Axis::tp);
  const WorkSize size{.rows = settings.micro_batch,
                      .sequence = settings.sequence,
                      .compute = settings.compute,
                      .tensor = sharing_of(settings.tensor, tp),
                      .programs = programs()};
  GraphSpec graph = trained_graph(build_spec(short_config_, size), settings, programs());
  mark_gradients(graph);
  return graph;
}

StageMap stage_map(const std::vector<int>& begins, std::vector<int> pp_coordinates) {
  StageMap map;
  map.pp_coordinates = std::move(pp_coordinates);
  for (std::size_t s = 0; s + 1 < begins.size(); ++s) {
    map.units.emplace_back(static_cast<std::size_t>(begins[s + 1] - begins[s]));
    std::iota(map.units.back().begin(), map.units.back().end(), begins[s]);
  }
  return map;
}

std::vector<PartialSums> partial_sums(const GraphSpec& resolved, const PlanSettings& settings) {
  std::vector<PartialSums> sums(resolved.units.size());
  if (settings.mesh.degree(Axis::tp) == 1) return sums;
  // Each unit as if it were a stage.
  DataSettings data;
  data.mesh = settings.mesh;
  data.unit_pp_coordinates.resize(sums.size());
  std::iota(data.unit_pp_coordinates.begin(), data.unit_pp_coordinates.end(), 0);
  for (std::size_t u = 0; u < sums.size(); ++u) {
    data.coordinate[Axis::pp] = static_cast<int>(u);
    const TpTraffic traffic = gradient_traffic(resolved, tensor_settings(data, settings));
    sums[u] = {.bytes = static_cast<double>(traffic.partials.bytes + traffic.copies.bytes),
               .calls = static_cast<double>(traffic.partials.calls + traffic.copies.calls)};
  }
  return sums;
}

}  // namespace orthant
