#include "orthant/layout/data_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

const std::vector<std::string> kOffloads = {"none", "optimizer", "params"};
const std::vector<std::string> kZeroNames = {"0", "1", "2", "3", "NO_SHARD", "SHARD_GRAD_OP", "FULL_SHARD"};

}  // namespace

std::string_view offload_name(Offload offload) {
  return kOffloads[static_cast<std::size_t>(offload)];
}

Offload parse_offload(std::string_view text) {
  const auto found = std::ranges::find(kOffloads, text);
  if (found == kOffloads.end()) {
    throw ConfigError(fmt::format("parallel.offload: unknown value \"{}\"", text),
                      {.remedy = did_you_mean(text, kOffloads)});
  }
  return static_cast<Offload>(found - kOffloads.begin());
}

int parse_zero(std::string_view text) {
  const auto found = std::ranges::find(kZeroNames, text);
  if (found == kZeroNames.end()) {
    throw ConfigError(fmt::format("parallel.zero: unknown value \"{}\"", text),
                      {.remedy = did_you_mean(text, kZeroNames)});
  }
  constexpr int kMeaning[] = {0, 1, 2, 3, 0, 2, 3};
  return kMeaning[found - kZeroNames.begin()];
}

Mesh with_shards_of_dp(const Mesh& mesh) {
  if (mesh.degree(Axis::dp) == 1 || mesh.degree(Axis::fsdp) > 1) return mesh;
  auto degrees = mesh.degrees();
  std::swap(degrees[Axis::dp], degrees[Axis::fsdp]);
  auto order = mesh.order();
  const auto dp = std::ranges::find(order, Axis::dp);
  const auto fsdp = std::ranges::find(order, Axis::fsdp);
  // Neighbours may stay: with one of them of degree 1 both orders are the same.
  if (std::abs(dp - fsdp) > 1) std::iter_swap(dp, fsdp);
  return Mesh(degrees, order_text(order));
}

DataPolicy effective_policy(DataPolicy policy, const Mesh& mesh) {
  if (mesh.degree(Axis::fsdp) == 1) {
    policy.zero = 0;
    policy.accumulate_sharded = false;
  }
  if (policy.accumulate_sharded && !policy.shards_gradients()) {
    throw ConfigError(
        fmt::format("parallel.accumulate is sharded with parallel.zero {}: gradients have no shards there",
                    policy.zero),
        {.remedy = "set parallel.zero=2 or 3, or parallel.accumulate=full"});
  }
  return policy;
}

AxisSet shard_axes(const DataPolicy& policy, const Mesh& mesh) {
  const bool spans =
      policy.shards_state() && policy.shard_over_context && mesh.degree(Axis::fsdp) > 1 && mesh.degree(Axis::cp) > 1;
  return spans ? AxisSet{Axis::fsdp, Axis::cp} : AxisSet{Axis::fsdp};
}

Mesh parameter_mesh(const Mesh& mesh, const DataPolicy& policy) {
  if (!shard_axes(policy, mesh).contains(Axis::cp)) return mesh;
  const auto& order = mesh.order();
  auto first = std::ranges::find(order, Axis::fsdp);
  auto last = std::ranges::find(order, Axis::cp);
  if (last < first) std::swap(first, last);
  if (std::any_of(first + 1, last, [&](Axis axis) { return mesh.degree(axis) > 1; })) {
    throw ConfigError(
        fmt::format("mesh {}: shards span fsdp and cp, and another axis lies between them in the order {}",
                    mesh.to_string(), order_text(order)),
        {.remedy = "use the order pp,dp,fsdp,cp,tp, or set parallel.shard_over_context=false"});
  }
  auto degrees = mesh.degrees();
  degrees[Axis::fsdp] *= degrees[Axis::cp];
  degrees[Axis::cp] = 1;
  return Mesh(degrees, order_text(order));
}

AxisSet copy_axes(const DataPolicy& policy, const Mesh& mesh) {
  AxisSet axes;
  const AxisSet shards = policy.zero == 0 ? AxisSet{} : shard_axes(policy, mesh);
  for (const Axis axis : {Axis::dp, Axis::fsdp, Axis::cp}) {
    if (mesh.degree(axis) > 1 && !shards.contains(axis)) axes = axes | axis;
  }
  return axes;
}

}  // namespace orthant
