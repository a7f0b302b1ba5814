// A decoder's forward pass as a generation runs it: attention keeps keys and values in a cache, and the head works on
// picked tokens alone. Pure: from graph to graph. See Note [Steps of a generation] in nn/token_rows.h.
#pragma once

#include <cstdint>
#include <vector>

#include "orthant/graph/spec.h"
#include "orthant/models/model_config.h"

namespace orthant {

// The model's, before it is placed: unit "head" gives "logits" [picked tokens, vocabulary]. ConfigError for a family
// that does not say a next token.
GraphSpec generation_graph(const ModelConfig& config, const WorkSize& work);

// What a unit's attention keeps on one rank of the graph's tp; kv_heads 0 without attention.
struct CachedHeads {
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t window = 0;  // 0: a token meets all before it
  std::int64_t heads = 0;   // of queries
};
std::vector<CachedHeads> cached_heads(const GraphSpec& graph);

// The widest of the units' windows; 0 when one of them has none: keys before it are never read again.
std::int64_t common_window(const std::vector<CachedHeads>& heads);

// Tokens that a sequence may have, prompt and answer together: the end of a table of positions, or, of rotary
// frequencies that would follow the length, of the length they are made for. 0: as many as the cache holds.
std::int64_t most_positions(const ModelConfig& config);

}  // namespace orthant
