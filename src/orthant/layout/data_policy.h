// What data parallelism keeps full on a rank and what as shards: one mechanism, chosen by numbers. Pure data, so that
// the planner prices and the runtime obeys the same words.
//
// Note [Data policies]: the fsdp axis cuts every flat buffer into equal shards. `zero` says what of it a rank keeps
// only its shard of: 0 nothing (fsdp ranks are then replicas like dp ranks), 1 the optimizer's copy and state, 2
// gradients too, 3 parameters too. Gradients of a step are summed over fsdp (reduce-scatter, or all-reduce when zero is
// 0) and then, the shard alone, over dp. Parameters travel back by all-gather: with 1 and 2 once a step after the
// update, with 3 before a use that does not find them full (schedule/gathers.h).
//
// Calls are joined: with 0 and 1, where full gradients live through the step anyway, the reductions of units that
// finish one after another share a call up to `bucket_bytes`; with 2 and 3, where waiting for company would keep full
// gradients alive, the units of one group (unit_groups.h) share a call, and the same groups are gathered together.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "orthant/mesh/axis.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

// Where the optimizer's copy of the parameters and its state lie, and where shards lie between uses.
enum class Offload {
  none,       // all on the device
  optimizer,  // the optimizer's copy, its state and its update on the host
  params,     // besides, with zero 3, the device holds no parameters between uses
};

std::string_view offload_name(Offload offload);
Offload parse_offload(std::string_view text);  // ConfigError with the nearest name

struct DataPolicy {
  int zero = 0;
  bool accumulate_sharded = false;  // gradients are summed over fsdp after every microbatch, not once a step
  int limit_all_gathers = 2;        // groups of units that are full at one time (zero 3)
  bool keep_gathered = false;       // full from the first use in a step to the last (zero 3)
  std::int64_t bucket_bytes = std::int64_t{25} << 20;  // 0: every unit has a call of its own
  Offload offload = Offload::none;
  bool shard_over_context = true;  // with fsdp, shards span fsdp and cp; false: ranks of cp hold the same shards

  bool shards_state() const { return zero >= 1; }
  bool shards_gradients() const { return zero >= 2; }
  bool shards_parameters() const { return zero >= 3; }
  friend bool operator==(const DataPolicy&, const DataPolicy&) = default;
};

// What a policy means on a mesh: with fsdp of degree 1 there is nothing to cut and every policy is `zero` 0, gradients
// accumulated full. ConfigError for gradients accumulated in shards that zero 0 or 1 does not have.
DataPolicy effective_policy(DataPolicy policy, const Mesh& mesh);

// The mesh with dp as its fsdp axis, where it has dp and no fsdp; else the same. Every rank keeps its place and its
// rows: only what ranks of that axis hold of the parameters changes. So ZeRO over the ranks of dp is sharding over
// fsdp.
Mesh with_shards_of_dp(const Mesh& mesh);

// The mesh as parameters lie on it. Ranks of cp work on parts of the same rows and need the same parameters: where
// there is an fsdp axis and shards span cp, both are one axis fsdp. Every rank keeps its place. ConfigError where
// another axis lies between the two in the order.
Mesh parameter_mesh(const Mesh& mesh, const DataPolicy& policy);

// The axes that are that mesh's fsdp: fsdp, and cp where shards span it.
AxisSet shard_axes(const DataPolicy& policy, const Mesh& mesh);

// 0 to 3, or FULL_SHARD (3), SHARD_GRAD_OP (2), NO_SHARD (0). ConfigError with the nearest name.
int parse_zero(std::string_view text);

// The axes whose ranks hold equal owned ranges, over which the last sum of a gradient goes: dp, cp where shards do not
// span it, and all of them when `zero` is 0; those of degree above 1. `policy` is effective.
AxisSet copy_axes(const DataPolicy& policy, const Mesh& mesh);

}  // namespace orthant
