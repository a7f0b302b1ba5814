// The numbers of a transformer whose layers are a single chain, in which closed forms of its parameters and FLOPs are
// written. A family gives those of its models.
#pragma once

#include <cstdint>

namespace orthant {

struct ChainShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t inner = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t positions = 0;    // rows of a learned table; 0: none
  std::int64_t token_types = 0;  // likewise
  bool gated = false;            // MLP of three matrices
  bool attention_biases = false;
  bool attention_output_bias = true;  // where attention has biases
  bool head_norms = false;            // a weight for the heads of queries, and one for those of keys
  bool mlp_biases = false;
  bool norm_biases = false;
  bool embedding_norm = false;
  bool final_norm = true;
  bool head_dense = false;  // a square product before that with the words
  bool head_bias = false;   // one per word
  bool tied = false;        // head and embedding
  bool dropout = false;
  bool causal = true;
  std::int64_t window = 0;  // tokens that a token sees; 0: all before it
  // Mixture of experts in every layer; without, experts is 0. Experts are MLPs as `gated` says, without biases.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_inner = 0;
  std::int64_t shared_inner = 0;  // of experts that every token passes
  bool shared_gate = false;       // a number for each token, by which their output is multiplied
  friend bool operator==(const ChainShape&, const ChainShape&) = default;
};

// Biases everywhere, as many heads of keys as of queries: what older families share.
template <typename Config>
ChainShape biased_chain(const Config& config, std::int64_t inner) {
  ChainShape shape;
  shape.layers = config.num_hidden_layers;
  shape.hidden = config.hidden_size;
  shape.inner = inner;
  shape.heads = config.num_attention_heads;
  shape.kv_heads = config.num_attention_heads;
  shape.head_size = config.head_size();
  shape.attention_biases = true;
  shape.mlp_biases = true;
  shape.norm_biases = true;
  return shape;
}

}  // namespace orthant
