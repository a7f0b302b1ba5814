// The pipeline of a run: from what a user says about stages and schedule, and the model's graph, to the stages with
// their places and the table of a step, proved to run. Trainer, planner and command line ask here, so that all of them
// speak of the same pipeline. Local and pure; errors name the keys of a run's configuration.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/schedule/stage_split.h"
#include "orthant/schedule/stage_table.h"
#include "orthant/schedule/stages.h"

namespace orthant {

// What a user says about the pipeline of a run.
struct PipelineSettings {
  std::string schedule = "1f1b";                     // one of schedule_names(), or a file (is_schedule_file)
  int virtual_stages = 0;                            // 0: the schedule's own
  int stages = 0;                                    // of an automatic cut; 0: as many as the pp coordinates need
  std::vector<std::vector<std::string>> split = {};  // unit names per stage; empty: automatic
  std::vector<int> placement = {};                   // pp coordinate per stage; empty: the schedule's
  std::map<std::string, double> unit_costs = {};     // measured seconds (F + B + W) by unit name; empty: spec FLOPs
  MemoryBound memory = {};                           // of an automatic cut; in_flight is filled in here
};

struct Pipeline {
  StageMap map;
  StageTable table;      // of a step
  double imbalance = 1;  // the heaviest pp coordinate over the mean, in the costs the cut was made with

  int pp_degree() const { return static_cast<int>(table.actions.size()); }
  std::vector<int> unit_pp_coordinates() const;  // per unit: its pp coordinate
  std::vector<int> unit_stages() const;          // per unit: its stage
};

// Not a known name, and a '/' or a '.' is in it.
bool is_schedule_file(std::string_view schedule);

// The stages of `graph` on `pp_degree` pp coordinates and the table of `microbatches`, validated. ConfigError for all
// that cannot run. On one pp coordinate schedule, placement and memory have no place to matter: the stages that are
// asked for run there one after the other, and a schedule file is not read. The evaluation table of the same stages is
// make_forward_schedule(map, graph, 1).
Pipeline make_pipeline(const GraphSpec& graph, int pp_degree, int microbatches, const PipelineSettings& asked);

}  // namespace orthant
