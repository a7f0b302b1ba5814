#include "orthant/schedule/stage_lines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "orthant/base/name_runs.h"

namespace orthant {

std::string stage_lines(const Pipeline& pipeline, const GraphSpec& graph) {
  auto text = fmt::format("pipeline of {} stages on {} pp coordinates, the heaviest at {:.2f} of the mean",
                          pipeline.map.num_stages(), pipeline.pp_degree(), pipeline.imbalance);
  for (std::size_t s = 0; s < pipeline.map.units.size(); ++s) {
    std::vector<std::string> names;
    for (const int unit : pipeline.map.units[s]) names.push_back(graph.units[static_cast<std::size_t>(unit)].name);
    std::vector<std::string> shown;
    for (const auto& run : name_runs(names, [](std::size_t, std::size_t) { return true; })) shown.push_back(run.name);
    text += fmt::format("\n  stage {} on pp {}: {}", s, pipeline.map.pp_coordinates[s], fmt::join(shown, ", "));
  }
  return text;
}

}  // namespace orthant
