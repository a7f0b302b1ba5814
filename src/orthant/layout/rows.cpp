#include "orthant/layout/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {
namespace {

std::int64_t divided_up(std::int64_t value, std::int64_t by) {
  return (value + by - 1) / by;
}

void check_share(std::int64_t global_batch, const RowShare& share) {
  if (global_batch < 1 || share.replica < 0 || share.replica >= share.replicas || share.microbatches < 1 ||
      share.microbatch_rows < 0) {
    throw InternalError(fmt::format("no rows for replica {} of {}: a batch of {} in {} microbatches of {}",
                                    share.replica, share.replicas, global_batch, share.microbatches,
                                    share.microbatch_rows));
  }
  const std::int64_t most = divided_up(global_batch, share.replicas);
  if (share.microbatch_rows > 0 && share.microbatch_rows * share.microbatches < most) {
    throw ConfigError(
        fmt::format("a global batch of {} over {} replicas is up to {} rows a replica, but {} microbatches of {} rows "
                    "hold {}",
                    global_batch, share.replicas, most, share.microbatches, share.microbatch_rows,
                    share.microbatches * share.microbatch_rows),
        {.remedy = fmt::format("set microbatch_rows to {}", divided_up(most, share.microbatches))});
  }
}

}  // namespace

int num_replicas(const Mesh& mesh) {
  return mesh.degree(Axis::dp) * mesh.degree(Axis::fsdp);
}

int replica_index(const Mesh& mesh, const Coordinate& coordinate) {
  return coordinate[Axis::dp] * mesh.degree(Axis::fsdp) + coordinate[Axis::fsdp];
}

ReplicaRows replica_rows(std::int64_t global_batch, const RowShare& share) {
  check_share(global_batch, share);
  // floor(g R / B) = r holds from g = ceil(r B / R) on.
  const Range real = {divided_up(share.replica * global_batch, share.replicas),
                      divided_up((share.replica + 1) * global_batch, share.replicas)};
  const std::int64_t rows = share.microbatch_rows > 0
                                ? share.microbatch_rows
                                : std::max<std::int64_t>(1, divided_up(real.size(), share.microbatches));
  return {.real = real, .microbatch_rows = rows, .padded_rows = rows * share.microbatches, .padding_row = real.end - 1};
}

}  // namespace orthant
