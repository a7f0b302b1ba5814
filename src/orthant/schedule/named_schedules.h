// Schedules by the names users write: which there are, how many stages each puts on a pp coordinate and where, and
// their tables, for a chain of stages or for the stages of a graph.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// gpipe, 1f1b, interleaved, zbh1, zbv.
const std::vector<std::string>& schedule_names();

// ConfigError with the nearest name.
void check_schedule_name(std::string_view name);

// Stages per pp coordinate: `asked`, or the schedule's own when 0 is asked: 2 for interleaved and zbv, 1 otherwise.
// ConfigError unless interleaved has at least 2, zbv 2 and the others 1.
int virtual_stages(std::string_view name, int asked = 0);

struct Schedule {
  StageTable table;
  std::vector<int> pp_coordinates;  // per stage: pp coordinate
};

// The pp coordinate of each of pp_degree x virtual stages: s % p for interleaved, down and up again for zbv.
std::vector<int> schedule_placement(std::string_view name, int pp_degree, int asked_virtual_stages = 0);

// For a chain of stages. ConfigError for names, stages per pp coordinate and sizes that are none.
Schedule make_schedule(std::string_view name, int pp_degree, int asked_virtual_stages, int microbatches);

// For the stages of a graph, wherever the map puts them; it must have passed check_stages(). gpipe, 1f1b and zbh1
// follow the edges between stages, so that branches run at the same time, and stages may share pp coordinates;
// interleaved and zbv take the stages as a chain and ask for their own placement. ConfigError otherwise.
StageTable make_schedule(std::string_view name, const StageMap& map, const GraphSpec& graph, int microbatches);

// Forward of every stage, for evaluation, on any map.
StageTable make_forward_schedule(const StageMap& map, const GraphSpec& graph, int microbatches);

}  // namespace orthant
