#include "orthant/plan/estimate/transformer_shape.h"

#include "orthant/program/cost.h"

namespace orthant {
namespace {

// Matrices of a layer that one token passes, without experts.
std::int64_t attention_matrices(const TransformerShape& shape) {
  return shape.hidden * (2 * shape.query_size() + 2 * shape.key_size());
}

std::int64_t attention_vectors(const TransformerShape& shape) {
  const std::int64_t biases =
      shape.query_size() + 2 * shape.key_size() + (shape.attention_output_bias ? shape.hidden : 0);
  return (shape.attention_biases ? biases : 0) + (shape.head_norms ? 2 * shape.head_size : 0);
}

std::int64_t mlp_parameters(const TransformerShape& shape) {
  const std::int64_t matrices = shape.mlp_matrices() * shape.hidden * shape.inner;
  return shape.mlp_biases ? matrices + (shape.mlp_matrices() - 1) * shape.inner + shape.hidden : matrices;
}

std::int64_t router_parameters(const TransformerShape& shape) {
  return shape.hidden * shape.experts;
}

std::int64_t shared_parameters(const TransformerShape& shape) {
  return shape.mlp_matrices() * shape.hidden * shape.shared_inner + (shape.shared_gate ? shape.hidden : 0);
}

// Elements of the matrices that one token is multiplied with in a layer.
std::int64_t multiplied(const TransformerShape& shape) {
  if (shape.experts == 0) return attention_matrices(shape) + shape.mlp_matrices() * shape.hidden * shape.inner;
  return attention_matrices(shape) + router_parameters(shape) + shared_parameters(shape) +
         shape.experts_per_token * shape.expert_parameters();
}

}  // namespace

std::int64_t TransformerShape::embedding_parameters() const {
  return (vocab + positions + token_types) * hidden + (embedding_norm ? norm_parameters() : 0);
}

std::int64_t TransformerShape::layer_parameters() const {
  const std::int64_t attention = attention_matrices(*this) + attention_vectors(*this) + 2 * norm_parameters();
  if (experts == 0) return attention + mlp_parameters(*this);
  return attention + router_parameters(*this) + shared_parameters(*this) + experts * expert_parameters();
}

std::int64_t TransformerShape::head_parameters() const {
  return (tied ? 0 : vocab * hidden) + (final_norm ? norm_parameters() : 0) +
         (head_dense ? hidden * hidden + hidden : 0) + (head_bias ? vocab : 0);
}

std::int64_t TransformerShape::num_parameters() const {
  return embedding_parameters() + layers * layer_parameters() + head_parameters();
}

std::int64_t TransformerShape::active_parameters() const {
  return num_parameters() - layers * (experts - experts_per_token) * expert_parameters();
}

double TransformerShape::forward_flops(std::int64_t sequence, bool halved) const {
  const auto s = static_cast<double>(sequence);
  const auto h = static_cast<double>(hidden);
  const double attention =
      4 * s * s * static_cast<double>(query_size()) * (halved ? attended_share(causal, window, sequence) : 1);
  const double layer = 2 * s * static_cast<double>(multiplied(*this)) + attention;
  const double head = 2 * s * h * (static_cast<double>(vocab) + (head_dense ? h : 0));
  return static_cast<double>(layers) * layer + head;
}

std::optional<TransformerShape> shape_of(const ModelConfig& config) {
  const ModelFacts facts = facts_of(config);
  if (!facts.chain) return std::nullopt;
  TransformerShape shape;
  static_cast<ChainShape&>(shape) = *facts.chain;
  shape.vocab = facts.vocab_size;
  shape.longest = facts.max_sequence;
  shape.frozen = !facts.freeze.empty();
  return shape;
}

}  // namespace orthant
