#include "orthant/models/post_norm_body.h"

#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"

namespace orthant {

Body post_norm_body(const PostNormLayer& layer) {
  Recorder r;
  const ops::Heads heads{layer.heads, layer.heads, layer.hidden / layer.heads};
  const Value x = r.tokens("hidden", layer.hidden);
  const Value mask = layer.mask ? r.field("attention_mask", Sym::tokens, Number::mask) : Value{};
  const Value qkv = ops::linear(r, x, {.weight = "qkv", .bias = "qkv_bias", .out = 3 * layer.hidden, .joined = true});
  const Value attended =
      ops::attention(r, qkv, mask, heads,
                     {.causal = layer.causal, .dropout = layer.attention_dropout, .site = "attention.probabilities"});
  const Value projected = ops::linear(
      r, attended, {.weight = "attention.output.weight", .bias = "attention.output.bias", .out = layer.hidden});
  const Value first = ops::add(r, ops::dropout(r, projected, layer.dropout, "attention.dropout"), x);
  const Value middle = ops::layer_norm(r, first, "attention.norm.weight", "attention.norm.bias", layer.eps);
  const Value wide = ops::linear(r, middle, {.weight = "mlp.up.weight", .bias = "mlp.up.bias", .out = layer.inner});
  const Value active = ops::activation(r, wide, layer.activation, layer.activation_dropout, "mlp.activation");
  const Value narrow =
      ops::linear(r, active, {.weight = "mlp.down.weight", .bias = "mlp.down.bias", .out = layer.hidden});
  const Value second = ops::add(r, ops::dropout(r, narrow, layer.dropout, "mlp.dropout"), middle);
  r.output(ops::layer_norm(r, second, "mlp.norm.weight", "mlp.norm.bias", layer.eps));
  return r.finish();
}

std::vector<ParameterSpec> post_norm_parameters(const PostNormLayer& layer, const std::string& unit, double stddev) {
  const std::int64_t h = layer.hidden;
  const std::int64_t f = layer.inner;
  const std::int64_t head_size = h / layer.heads;
  const Split by_head = split_dim(0, head_size);
  return {matrix(unit + ".attention.query.weight", h, h, stddev, by_head, "qkv"),
          matrix(unit + ".attention.key.weight", h, h, stddev, by_head, "qkv"),
          matrix(unit + ".attention.value.weight", h, h, stddev, by_head, "qkv"),
          matrix(unit + ".attention.output.weight", h, h, stddev, split_dim(1, head_size)),
          matrix(unit + ".mlp.up.weight", f, h, stddev, split_dim(0)),
          matrix(unit + ".mlp.down.weight", h, f, stddev, split_dim(1)),
          bias(unit + ".attention.query.bias", h, by_head, "qkv_bias"),
          bias(unit + ".attention.key.bias", h, by_head, "qkv_bias"),
          bias(unit + ".attention.value.bias", h, by_head, "qkv_bias"),
          along_sequence(bias(unit + ".attention.output.bias", h)),
          along_sequence(norm_weight(unit + ".attention.norm.weight", h)),
          along_sequence(bias(unit + ".attention.norm.bias", h)),
          bias(unit + ".mlp.up.bias", f, split_dim(0)),
          along_sequence(bias(unit + ".mlp.down.bias", h)),
          along_sequence(norm_weight(unit + ".mlp.norm.weight", h)),
          along_sequence(bias(unit + ".mlp.norm.bias", h))};
}

}  // namespace orthant
