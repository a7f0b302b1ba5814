// Experts over ranks: which ranks hold which experts, and the mesh on which their parameters lie. Pure, and alike on
// every rank.
//
// Note [Mesh of experts]: the ranks of a stage, in their order, are seen a second time as copies x shards x ep x
// expert_tp, the last innermost. ep ranks hold different experts; expert_tp of them (1, or tp under
// `parallel.expert_tp`) share each expert as they share a dense layer; ranks that hold the same experts share shards of
// them where the data policy shards parameters, within one dp coordinate when ep and expert_tp divide its ranks, else
// over all of them. That is a mesh of the same ranks whose axis fsdp has the shards, dp the copies and tp the holders
// of different parts, so that flat buffers, sums, checkpoints and norms treat it as any mesh. With ep 1 and experts cut
// over tp like dense layers, or without tp, there is nothing to see twice, and experts lie among the other parameters.
#pragma once

#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/flat_unit.h"
#include "orthant/layout/local_parameter.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/mesh/mesh.h"

namespace orthant {

// Whether parameters are marked as experts'. In a graph of with_experts(): whether these have a mesh of their own.
bool has_experts(const GraphSpec& graph);
// Whether tokens of some unit are dealt out to experts, wherever these lie.
bool routes_tokens(const GraphSpec& graph);

// The graph with experts as they lie on `mesh`: ParameterSpec::expert is left where they have a mesh of their
// own, and ParameterSpec::tp where tp ranks share each expert. Comes before resolved_graph(). ConfigError for ep
// without experts or with fewer experts than ranks, for orders of axes in which ranks of ep or expert_tp are no
// neighbours, and for experts that are whole on tp ranks while these have the same tokens.
GraphSpec with_experts(GraphSpec graph, const Mesh& mesh, const TensorPolicy& policy);

// The tp ranks that share each expert of such a graph: 1 or the degree of tp. 0 where none has a mesh of its own.
int expert_tp(const GraphSpec& graph, const Mesh& mesh);

// See Note [Mesh of experts]. `mesh` is parameter_mesh() or the job's: both give the same.
Mesh expert_mesh(const Mesh& mesh, int expert_tp);

// The mesh on which a buffer lies: that, or `parameter_mesh` itself.
Mesh mesh_of(const FlatBuffer& buffer, const Mesh& parameter_mesh);

// Groups of ranks that hold each expert once and the same part of it: tokens travel within one. All groups of the mesh,
// by their first rank.
std::vector<RankList> token_groups(const Mesh& mesh, int expert_tp);

// Whether the rank at that coordinate of expert_mesh()'s tp axis, which has `holders` ranks, holds the parameter's
// expert, and what it then holds of the parameter. Experts are cut over ep by the balanced rule.
bool holds_expert(const ParameterSpec& parameter, int holders, int coordinate, int expert_tp);
LocalParameter local_expert(const ParameterSpec& parameter, int coordinate, int expert_tp);

}  // namespace orthant
