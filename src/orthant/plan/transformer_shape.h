// The numbers of a transformer that closed forms are written in, and what follows from them alone: parameters and
// FLOPs. A shape is taken from a model's configuration, or exists only on paper (mixtures of experts).
#pragma once

#include <cstdint>
#include <optional>

#include "orthant/models/model_config.h"

namespace orthant {

struct TransformerShape {
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t inner = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::int64_t vocab = 0;
  std::int64_t positions = 0;    // rows of a learned table; 0: none
  std::int64_t token_types = 0;  // likewise
  std::int64_t longest = 0;      // sequence it can read; 0: any
  bool gated = false;            // MLP of three matrices
  bool attention_biases = false;
  bool head_norms = false;  // a weight for the heads of queries, and one for those of keys
  bool mlp_biases = false;
  bool norm_biases = false;
  bool embedding_norm = false;
  bool final_norm = true;
  bool head_dense = false;  // a square product before that with the words: BERT
  bool head_bias = false;   // one per word
  bool tied = false;        // head and embedding
  bool dropout = false;
  bool causal = true;
  std::int64_t window = 0;  // tokens that a token sees; 0: all before it
  bool frozen = false;      // some parameters are not trained
  // Mixture of experts; without, experts is 0. Experts are MLPs as `gated` says, without biases.
  std::int64_t experts = 0;
  std::int64_t experts_per_token = 0;
  std::int64_t expert_inner = 0;
  std::int64_t shared_inner = 0;  // of experts that every token passes
  friend bool operator==(const TransformerShape&, const TransformerShape&) = default;

  std::int64_t query_size() const { return heads * head_size; }
  std::int64_t key_size() const { return kv_heads * head_size; }
  std::int64_t mlp_matrices() const { return gated ? 3 : 2; }
  std::int64_t norm_parameters() const { return norm_biases ? 2 * hidden : hidden; }
  std::int64_t expert_parameters() const { return mlp_matrices() * hidden * expert_inner; }  // of one

  std::int64_t embedding_parameters() const;
  std::int64_t layer_parameters() const;
  std::int64_t head_parameters() const;  // that it owns: a tied table is not among them
  std::int64_t num_parameters() const;
  std::int64_t active_parameters() const;  // that one token passes

  // Products and attention of a forward over one sequence; lookups, norms and the like count 0. With `halved` causal
  // attention counts the half that its mask leaves.
  double forward_flops(std::int64_t sequence, bool halved) const;
};

// Nothing for a model that is no single chain of layers (trimodal).
std::optional<TransformerShape> shape_of(const ModelConfig& config);

}  // namespace orthant
