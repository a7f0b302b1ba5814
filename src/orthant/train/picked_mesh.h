// The mesh that the planner picks for a run on the ranks that there are, with the settings that go with it. Batch,
// seed, order of the data and learning rate stay as they are configured: none of them depends on a mesh. Local.
#pragma once

#include <string>
#include <vector>

#include "orthant/base/json_document.h"
#include "orthant/mesh/mesh.h"
#include "orthant/plan/estimate/hardware.h"
#include "orthant/plan/estimate/plan_settings.h"

namespace orthant {

// The ranks that a run is to have.
struct RankWorld {
  int size = 1;
  int ranks_per_host = 1;
  Hardware hardware;  // of one rank: memory_bytes is what a rank may take
};

struct PickedMesh {
  Mesh mesh = {};
  std::vector<TrainSetting> settings = {};  // of planned_keys(), as --set would give them
  double step_seconds = 0;                  // predicted
  std::string reason = {};                  // why no mesh was picked; empty: one was
  std::string remedy = {};                  // what would do then

  bool found() const { return reason.empty(); }
  std::string text() const;  // "pp=2,dp=2 with parallel.microbatches=4, ...": what a run is told
};

// As --set would give them: what makes a run on one rank of this configuration, whatever mesh it was written for. What
// is wrong with it then is wrong on every mesh.
std::vector<std::string> one_rank_assignments(const JsonDocument& document);

// The fastest mesh of that many ranks, by orthant::search(), that this configuration trains on and whose ranks fit into
// their memory. What the configuration says of a mesh and of planned_keys() counts for nothing. The same arguments give
// the same answer, on whatever rank. ConfigError for what is wrong on every mesh.
PickedMesh pick_mesh(const JsonDocument& document, const RankWorld& world);

}  // namespace orthant
