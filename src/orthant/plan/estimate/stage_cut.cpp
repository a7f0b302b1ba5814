#include "orthant/plan/estimate/stage_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>

#include "orthant/base/error.h"

namespace orthant {
namespace {

std::vector<std::int64_t> even_layers(std::int64_t layers, int stages) {
  const auto most = (layers + stages - 1) / stages;
  std::vector<std::int64_t> counts(static_cast<std::size_t>(stages), most);
  std::size_t first = 0;
  std::size_t last = counts.size();
  for (auto missing = most * stages - layers; missing > 0; --missing) {
    const bool from_end = first == counts.size() - last;
    --counts[from_end ? --last : first++];
  }
  return counts;
}

std::vector<std::int64_t> parse_counts(const std::string& split) {
  std::vector<std::int64_t> counts;
  const char* at = split.data();
  const char* end = at + split.size();
  while (true) {
    std::int64_t count = 0;
    const auto [next, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < 0 || (next != end && *next != ',')) {
      throw ConfigError(fmt::format("--split {}: not a list of layers per stage", split),
                        {.remedy = "use even, auto, or numbers like 2,3,3,2"});
    }
    counts.push_back(count);
    if (next == end) return counts;
    at = next + 1;
  }
}

}  // namespace

std::vector<std::int64_t> layers_per_stage(const std::string& split, std::int64_t layers, int stages) {
  if (split == "even") return even_layers(layers, stages);
  const auto counts = parse_counts(split);
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (static_cast<int>(counts.size()) != stages || total != layers) {
    throw ConfigError(fmt::format("--split {}: {} layers on {} stages, while the model has {} and the mesh {}", split,
                                  total, counts.size(), layers, stages),
                      {.remedy = "give one number per stage (pp x virtual stages) that add up to the layers"});
  }
  return counts;
}

StageMap chain_stages(const std::vector<std::int64_t>& layers, const std::vector<int>& pp_coordinates) {
  StageMap map;
  map.pp_coordinates = pp_coordinates;
  int unit = 0;
  for (std::size_t stage = 0; stage < layers.size(); ++stage) {
    auto& units = map.units.emplace_back();
    if (stage == 0) units.push_back(unit++);
    for (std::int64_t layer = 0; layer < layers[stage]; ++layer) units.push_back(unit++);
    if (stage + 1 == layers.size()) units.push_back(unit++);
    if (units.empty()) {
      throw ConfigError(fmt::format("stage {} of {} has no layer", stage, layers.size()),
                        {.remedy = "use fewer stages (pp x virtual stages)"});
    }
  }
  return map;
}

std::vector<std::vector<std::string>> named_split(const GraphSpec& graph, const std::string& split, int stages) {
  const auto& units = graph.units;
  const auto first = std::ranges::find_if(units, &UnitSpec::recomputable);
  const auto last = std::find_if_not(first, units.end(), [](const UnitSpec& unit) { return unit.recomputable; });
  const bool one_run =
      first != units.end() && std::none_of(last, units.end(), [](const UnitSpec& unit) { return unit.recomputable; });
  if (!one_run) {
    if (split == "even") return {};
    throw ConfigError(fmt::format("--split {}: the layers of {} are not one run of units", split, graph.name),
                      {.remedy = "use --split even or auto"});
  }
  std::vector<std::vector<std::string>> names;
  auto next = units.begin();
  const auto counts = layers_per_stage(split, last - first, stages);
  for (std::size_t stage = 0; stage < counts.size(); ++stage) {
    auto end = (stage == 0 ? first : next) + counts[stage];
    if (stage + 1 == counts.size()) end = units.end();
    auto& named = names.emplace_back();
    for (; next != end; ++next) named.push_back(next->name);
  }
  return names;
}

}  // namespace orthant
