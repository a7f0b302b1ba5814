// What the lists of data parallelism and their closed forms are made for: the mesh, the policy, dtypes. Pure data.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/dtype.h"
#include "orthant/layout/data_policy.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

struct DataSettings {
  Mesh mesh = {};
  Coordinate coordinate = {};  // of the rank: buffers may differ over tp
  DataPolicy policy = {};      // effective on `mesh`
  DType params = DType::float32;
  DType compute = DType::float32;
  DType reduce = DType::float32;
  bool splits_master = false;  // float32 params are kept as the bfloat16 compute copy and 16 more bits
  int optimizer_copies = 2;    // of the parameters' size: 2 for AdamW, 1 for momentum, 0 for plain SGD
  int microbatches = 1;
  std::vector<int> unit_groups = {};          // per unit, see layout/unit_groups.h; empty: every unit alone
  std::vector<int> unit_pp_coordinates = {};  // per unit: its pp coordinate; empty: one stage
  bool bf16_hook = false;                     // gradients travel in bfloat16
  friend bool operator==(const DataSettings&, const DataSettings&) = default;
};

}  // namespace orthant
