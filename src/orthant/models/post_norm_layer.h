// An encoder layer as BERT and torch.nn.TransformerEncoderLayer have it: attention, then MLP, each followed by dropout,
// residual and LayerNorm. Parameters are named attention.{query,key,value,output,norm} and mlp.{up,down,norm}.
#pragma once

#include <memory>

#include "orthant/nn/activation.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/unit.h"

namespace orthant {

struct PostNormLayer {
  std::int64_t head_size = 1;
  bool causal = false;
  double eps = 1e-5;
  nn::ActivationKind activation = nn::ActivationKind::gelu;
  double attention_dropout = 0;   // of the probabilities
  double activation_dropout = 0;  // between the MLP's products
  double dropout = 0;             // before residual sums
};

// hidden [rows, sequence, hidden] and, where the spec has one, a mask [rows, sequence] of keys -> hidden. Keeps
// references to the parameters.
std::unique_ptr<Unit> make_post_norm_layer(const PostNormLayer& layer, const UnitParameters& parameters);

}  // namespace orthant
