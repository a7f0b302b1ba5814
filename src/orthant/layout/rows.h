// Which rows of a global batch a replica works on. Row g of B goes to replica floor(g R / B), and a replica's rows go
// to contiguous microbatches by the balanced rule. A smaller last batch fills the same microbatches with copies of a
// real row that weigh nothing, so that every replica runs the same schedule. Local.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/layout/ranges.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

struct MicrobatchRows {
  std::int64_t first_row = 0;    // in the global batch
  std::int64_t real_rows = 0;    // those of weight 1; the padding follows them
  std::int64_t rows = 0;         // with padding
  std::int64_t padding_row = 0;  // the real row of the global batch that padding copies

  // The global row behind local row i.
  std::int64_t row(std::int64_t i) const { return i < real_rows ? first_row + i : padding_row; }
  friend bool operator==(const MicrobatchRows&, const MicrobatchRows&) = default;
};

// dp x fsdp, and the place of a coordinate among them, dp outermost. cp and tp ranks work on the same rows.
int num_replicas(const Mesh& mesh);
int replica_index(const Mesh& mesh, const Coordinate& coordinate);

// The rows of one replica, in global order.
Range replica_rows(std::int64_t global_batch, int replicas, int replica);

// One entry per microbatch, each of `microbatch_size` rows. ConfigError when the batch has more rows than all
// microbatches together; InternalError for an empty batch.
std::vector<MicrobatchRows> microbatch_rows(std::int64_t global_batch, int replicas, int replica, int microbatches,
                                            std::int64_t microbatch_size);

}  // namespace orthant
