// The numbers of a transformer that closed forms are written in, and what follows from them alone: parameters and
// FLOPs. A shape is taken from a model's configuration, or exists only on paper (mixtures of experts).
#pragma once

#include <cstdint>
#include <optional>

#include "orthant/models/model_facts.h"

namespace orthant {

struct TransformerShape : ChainShape {
  std::int64_t vocab = 0;
  std::int64_t longest = 0;  // sequence it can read; 0: any
  bool frozen = false;       // some parameters are not trained
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

// Nothing for a model that is no single chain of layers.
std::optional<TransformerShape> shape_of(const ModelConfig& config);

}  // namespace orthant
