// What a transformer layer computes that adds a branch's dropout to its input and normalises the sum: BERT's, and that
// of torch.nn.TransformerEncoderLayer. Pure.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant {

struct PostNormLayer {
  std::int64_t hidden = 0;
  std::int64_t heads = 1;
  std::int64_t inner = 0;
  bool causal = false;
  bool mask = false;  // the unit's second input
  double eps = 1e-5;
  std::string activation;
  double attention_dropout = 0;   // of probabilities
  double activation_dropout = 0;  // inside the MLP
  double dropout = 0;             // of both branches
};
Body post_norm_body(const PostNormLayer& layer);

// What it reads, of the unit of that name; matrices are drawn from normal(0, stddev).
std::vector<ParameterSpec> post_norm_parameters(const PostNormLayer& layer, const std::string& unit, double stddev);

}  // namespace orthant
