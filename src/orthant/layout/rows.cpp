#include "orthant/layout/rows.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"

namespace orthant {

int num_replicas(const Mesh& mesh) {
  return mesh.degree(Axis::dp) * mesh.degree(Axis::fsdp);
}

int replica_index(const Mesh& mesh, const Coordinate& coordinate) {
  return coordinate[Axis::dp] * mesh.degree(Axis::fsdp) + coordinate[Axis::fsdp];
}

Range replica_rows(std::int64_t global_batch, int replicas, int replica) {
  // floor(g R / B) = r holds from g = ceil(r B / R) on.
  const auto first = [&](std::int64_t r) { return (r * global_batch + replicas - 1) / replicas; };
  return {first(replica), first(replica + std::int64_t{1})};
}

std::vector<MicrobatchRows> microbatch_rows(std::int64_t global_batch, int replicas, int replica, int microbatches,
                                            std::int64_t microbatch_size) {
  if (global_batch < 1 || replica < 0 || replica >= replicas || microbatches < 1 || microbatch_size < 1) {
    throw InternalError(fmt::format("no rows for replica {} of {}: a batch of {} in {} microbatches of {}", replica,
                                    replicas, global_batch, microbatches, microbatch_size));
  }
  const std::int64_t capacity = microbatch_size * microbatches * replicas;
  if (global_batch > capacity) {
    throw ConfigError(
        fmt::format("a global batch of {} rows does not fit {} replicas x {} microbatches x {} rows = {}", global_batch,
                    replicas, microbatches, microbatch_size, capacity),
        {.remedy = fmt::format("set train.global_batch_size to {}, or parallel.microbatches to {}", capacity,
                               (global_batch + replicas * microbatch_size - 1) / (replicas * microbatch_size))});
  }
  const Range mine = replica_rows(global_batch, replicas, replica);
  std::vector<MicrobatchRows> all;
  for (int m = 0; m < microbatches; ++m) {
    const Range part = balanced_range(mine.size(), microbatches, m);
    const std::int64_t first = mine.begin + part.begin;
    const std::int64_t last = part.empty() ? std::min(first, global_batch - 1) : first + part.size() - 1;
    all.push_back({.first_row = first, .real_rows = part.size(), .rows = microbatch_size, .padding_row = last});
  }
  return all;
}

}  // namespace orthant
