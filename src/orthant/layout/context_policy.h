// Context parallelism as a setting, and a model's graph as its rows lie over cp. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

// `parallel.context`; nothing: chosen_way().
using ContextPolicy = std::optional<ContextWay>;

// auto, ring, all_to_all or gather; nothing: none of these, which are context_words().
std::optional<ContextPolicy> parse_context(std::string_view text);
std::vector<std::string> context_words();

// By what a rank sends for one layer in forward and backward: all_to_all where cp divides the query heads of a tp rank
// and that is less than a ring sends; else ring, whose messages travel while blocks are computed.
ContextWay chosen_way(const GraphSpec& graph, int cp_degree);

// How the rows of a graph are cut: in zigzag where an attention is causal and keys travel to queries.
ContextSharing context_sharing(const GraphSpec& graph, const ContextPolicy& policy, int cp_degree);

// The graph with that as GraphSpec::context. ConfigError for a user's own modules, and for rows so short that a rank
// would have no token. A graph that is so already stays.
GraphSpec with_shared_rows(GraphSpec graph, const ContextPolicy& policy, int cp_degree);

}  // namespace orthant
