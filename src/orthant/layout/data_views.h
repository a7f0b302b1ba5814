// The flat buffers of a rank by the mesh they lie on: most on that of the settings, experts perhaps on one of their own
// (expert_view.h). What is exchanged, kept and counted of them follows for each view alike. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/data_settings.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

struct DataView {
  UnitBuffers buffers;    // numbers are the same in all views
  Mesh mesh;              // on which they lie
  DataSettings settings;  // with the policy that is effective there
  bool experts = false;

  std::int64_t num_shards() const { return settings.policy.shards_state() ? mesh.degree(Axis::fsdp) : 1; }
  std::vector<int> all() const;  // numbers of its buffers, ascending
};

// The first is that of all but experts.
std::vector<DataView> data_views(const GraphSpec& graph, const DataSettings& settings);

}  // namespace orthant
