// The styles of `parallel.plan` applied to what a model declares: which parameters stay cut over tp and which become
// whole, or why that would give wrong sums. A part of resolved_graph(). Local.
//
// Note [Product chains]: column products leave their output cut over channels, and the row product after them sums
// over tp what it makes of those parts. So the cut parameters of such a chain are whole together or not at all. They
// are those of one unit whose names begin alike after the unit's name ("layers.3" + "mlp"); a head and a table are
// chains of their own, and a tied table is one with the bias that the head adds to its product.
//
// Note [Tied heads]: a head that borrows the table has no weight to name. `lm_head` as column cuts the logits over the
// vocabulary, which is the table cut over its entries. The table as column beside `lm_head` as row, seed 002's plan,
// cuts the one weight over channels: the same products added up in another place, so the table is cut over its entries
// then, too. Either one alone contradicts the other use, and is refused.
#pragma once

#include "orthant/graph/spec.h"
#include "orthant/layout/tensor_policy.h"

namespace orthant {

// For more than one tp rank. ConfigError that names the pattern, the parameter, the reason and what to set.
void apply_tensor_styles(GraphSpec& graph, const TensorPolicy& policy);

}  // namespace orthant
