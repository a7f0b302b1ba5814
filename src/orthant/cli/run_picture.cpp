#include "orthant/cli/run_picture.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/mesh/picture.h"
#include "orthant/schedule/grid.h"
#include "orthant/schedule/stage_lines.h"
#include "orthant/train/trainer_setup.h"

namespace orthant::cli {
namespace {

constexpr std::size_t kWidest = 160;

bool fits(const std::string& text) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    const auto end = std::min(text.find('\n', begin), text.size());
    if (end - begin > kWidest) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::string schedule_picture(const RunConfig& config, const GraphSpec& spec, const Pipeline& pipeline) {
  const auto& table = pipeline.table;
  return fmt::format("Schedule {}, {} microbatch{}, a row for each pp coordinate:\n{}", config.trainer.stages.schedule,
                     table.num_microbatches, table.num_microbatches == 1 ? "" : "es",
                     grid_text(table, stage_edges(pipeline.map, spec)));
}

std::string run_picture(const RunConfig& config, int ranks_per_host) {
  if (config.mesh.world_size() == 1) return "";
  auto text = fmt::format("\nranks of mesh {}\n{}", config.mesh.to_string(), grid_text(config.mesh, ranks_per_host));
  if (config.mesh.degree(Axis::pp) == 1) return text;
  const auto spec = run_spec(config);
  const auto pipeline = trainer_pipeline(spec, config.mesh, config.trainer);
  text += fmt::format("\n{}\n", stage_lines(pipeline, spec));
  const auto schedule = schedule_picture(config, spec, pipeline);
  return fits(schedule) ? text + "\n" + schedule : text;
}

}  // namespace orthant::cli
