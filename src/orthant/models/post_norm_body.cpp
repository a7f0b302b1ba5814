#include "orthant/models/post_norm_body.h"

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

}  // namespace orthant
