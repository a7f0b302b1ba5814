// What the closed forms of data parallelism are computed for: the mesh, the policy, dtypes, and the flat buffers of a
// graph by the units that read them. Also the actions that the policy adds to a list, so that what is priced is what
// runs. Pure data; nothing here communicates.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/dtype.h"
#include "orthant/graph/spec.h"
#include "orthant/layout/data_policy.h"
#include "orthant/layout/flat_unit.h"
#include "orthant/mesh/mesh.h"
#include "orthant/schedule/actions.h"

namespace orthant {

struct DataSettings {
  Mesh mesh = {};
  DataPolicy policy = {};  // effective on `mesh`
  DType params = DType::float32;
  DType compute = DType::float32;
  DType reduce = DType::float32;
  int optimizer_copies = 2;  // of the parameters' size: 2 for AdamW, 1 for momentum, 0 for plain SGD
  int microbatches = 1;
  std::vector<int> groups = {};  // per unit, see layout/unit_groups.h; empty: every unit alone
  bool bf16_hook = false;        // gradients travel in bfloat16
};

// The flat buffers of a graph as the first rank of a stage holds them.
struct DataBuffers {
  std::vector<FlatBuffer> all;         // by owner
  std::vector<std::vector<int>> used;  // per unit: those it reads, own and tied
  std::vector<std::vector<int>> held;  // per unit: trainable ones that it owns, whose gradients it reduces
  std::vector<int> groups;             // per unit

  const FlatBuffer& operator[](int buffer) const { return all[static_cast<std::size_t>(buffer)]; }
  std::int64_t elements(const std::vector<int>& buffers) const;  // with padding
};

DataBuffers data_buffers(const GraphSpec& graph, const DataSettings& settings);

// A lowered list with what the policy adds: reductions of every microbatch where gradients are accumulated in shards,
// gathers and frees where parameters are sharded.
std::vector<Action> data_actions(const std::vector<Action>& actions, const GraphSpec& graph,
                                 const DataSettings& settings);

}  // namespace orthant
