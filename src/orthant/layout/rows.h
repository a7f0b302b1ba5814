// Which rows of a global batch a replica runs, and in which microbatch. The loader fills batches by this rule, so that
// a row's place in the global batch is known wherever its microbatch is. Values only. Local.
//
// Note [Rows of a replica]: row g of a global batch of B rows goes to replica floor(g R/B) of R: replica r holds the
// rows [ceil(r B/R), ceil((r+1) B/R)), also of the smaller last batch of an epoch. A replica then runs `microbatches`
// microbatches of equal rows, each contiguous: microbatch m is rows [m k, (m+1) k). k is `microbatch_rows` when that is
// set (every step then has the same shapes), else as few as hold the replica's rows, and at least 1. Missing rows
// follow the real ones: copies of the replica's last row, or of the last row before its range when it has none, with
// labels that are ignored. So every replica runs every microbatch, also in a batch of fewer rows than replicas, and
// padding adds nothing to loss, gradients, `samples` or `tokens`.
#pragma once

#include <cstdint>

#include "orthant/base/ranges.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

// dp x fsdp, and the place of a coordinate among them, dp outermost. cp and tp ranks work on the same rows.
int num_replicas(const Mesh& mesh);
int replica_index(const Mesh& mesh, const Coordinate& coordinate);

// How global batches are shared out, and to whom.
struct RowShare {
  std::int64_t replicas = 1;
  std::int64_t replica = 0;
  std::int64_t microbatches = 1;     // per replica and step
  std::int64_t microbatch_rows = 0;  // 0: as few as hold the replica's rows
};

struct ReplicaRows {
  Range real;                        // of the global batch; the padding follows them
  std::int64_t microbatch_rows = 1;  // with padding, the same in every microbatch
  std::int64_t padded_rows = 1;      // in all microbatches together
  std::int64_t padding_row = 0;      // the real row of the global batch that padding copies
  friend bool operator==(const ReplicaRows&, const ReplicaRows&) = default;
};

// ConfigError, the same on every replica, when a replica's rows do not fit its microbatches.
ReplicaRows replica_rows(std::int64_t global_batch, const RowShare& share);

}  // namespace orthant
