#include "orthant/mesh/traffic.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "orthant/mesh/hosts.h"

namespace orthant {
namespace {

constexpr Axis kByDemand[] = {Axis::tp, Axis::cp, Axis::ep, Axis::fsdp, Axis::pp, Axis::dp};
constexpr std::string_view kActivations = "O(micro_batch x seq_len x hidden_dim)";

// "O(model_parameters / (pp x tp))": the part of the model that the given axes leave on a rank.
std::string share_of_model(const Mesh& mesh, AxisSet splitting) {
  std::vector<std::string_view> names;
  for (Axis axis : splitting& mesh.active_axes()) names.push_back(axis_name(axis));
  if (names.empty()) return "O(model_parameters)";
  if (names.size() == 1) return fmt::format("O(model_parameters / {})", names.front());
  return fmt::format("O(model_parameters / ({}))", fmt::join(names, " x "));
}

// The words of a row; numbers are filled in by the caller.
Traffic words(const Mesh& mesh, Axis axis) {
  const auto row = [axis](std::string pattern, std::string payload, std::string frequency, std::string data_size,
                          BandwidthNeed bandwidth) {
    return Traffic{.axis = std::string(axis_name(axis)),
                   .pattern = std::move(pattern),
                   .payload = std::move(payload),
                   .frequency = std::move(frequency),
                   .data_size = std::move(data_size),
                   .bandwidth = bandwidth};
  };
  const std::string activations(kActivations);
  switch (axis) {
    case Axis::tp:
      return row("all-reduce", "activations", "2x per layer, forward and backward", activations, BandwidthNeed::high);
    case Axis::cp:
      return row("ring send/receive", "keys and values", "cp - 1 steps per layer, forward and backward",
                 "O(micro_batch x seq_len / cp x kv_dim)", BandwidthNeed::high);
    case Axis::ep:
      return row("all-to-all", "tokens", "2x per expert layer, forward and backward",
                 "O(micro_batch x seq_len x top_k x hidden_dim)", BandwidthNeed::high);
    case Axis::fsdp:
      return row("all-gather + reduce-scatter", "parameters and gradients", "per unit, forward and backward",
                 "O(unit_parameters)", BandwidthNeed::medium);
    case Axis::pp:
      return row("send/receive", "activations", "1x per microbatch and stage, forward and backward", activations,
                 BandwidthNeed::medium);
    case Axis::dp:
      break;
  }
  return row("all-reduce", "gradients", "1x per step", share_of_model(mesh, {Axis::pp, Axis::fsdp, Axis::tp}),
             BandwidthNeed::low);
}

Traffic expert_gradients(const Mesh& mesh, int ranks_per_host) {
  return {.axis = "edp",
          .pattern = "all-reduce",
          .payload = "expert gradients",
          .frequency = "1x per step",
          .data_size = "O(expert_parameters / ep)",
          .bandwidth = BandwidthNeed::low,
          .num_groups = mesh.world_size() / mesh.num_expert_replicas(),
          .group_size = mesh.num_expert_replicas(),
          .crosses_hosts = std::ranges::any_of(
              mesh.expert_replica_groups(), [&](const RankList& group) { return spans_hosts(group, ranks_per_host); })};
}

}  // namespace

std::string_view bandwidth_name(BandwidthNeed need) {
  constexpr std::string_view kNames[] = {"low", "medium", "high"};
  return kNames[static_cast<std::size_t>(need)];
}

std::vector<Traffic> traffic(const Mesh& mesh, int ranks_per_host) {
  std::vector<Traffic> rows;
  for (Axis axis : kByDemand) {
    if (mesh.degree(axis) == 1) continue;
    Traffic& row = rows.emplace_back(words(mesh, axis));
    row.num_groups = mesh.num_groups(axis);
    row.group_size = mesh.degree(axis);
    row.crosses_hosts = crosses_hosts(mesh, axis, ranks_per_host);
  }
  if (mesh.degree(Axis::ep) > 1 && mesh.num_expert_replicas() > 1)
    rows.push_back(expert_gradients(mesh, ranks_per_host));
  return rows;
}

}  // namespace orthant
