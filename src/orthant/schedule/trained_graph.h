// The graph as a trainer runs it, which is what the planner prices: placed over tp, head and loss one unit where the
// settings say so. Pure and local.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/layout/tensor_policy.h"
#include "orthant/mesh/mesh.h"
#include "orthant/models/head_loss.h"

namespace orthant {

// `split`: the user's stages, or nothing; a cut between head and loss leaves them two units where nothing else says
// that they are one. A graph that is so already stays. ConfigError where it cannot.
GraphSpec trained_graph(GraphSpec graph, const TensorPolicy& tensor, const Mesh& mesh, const HeadLossOptions& head_loss,
                        const std::vector<std::vector<std::string>>& split);

}  // namespace orthant
