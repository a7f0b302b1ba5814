#include <cmath>
#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/models/post_norm_body.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

Body embed_body(const EncoderLmConfig& config) {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  const Value words =
      ops::embedding(r, {{.ids = ids, .table = "weight", .entries = config.vocab_size}}, config.hidden_size);
  const Value placed = ops::add_waves(r, words, std::sqrt(static_cast<double>(config.hidden_size)));
  r.output(ops::dropout(r, placed, config.dropout, "dropout"));
  return r.finish();
}

PostNormLayer layer_of(const EncoderLmConfig& config, const DecoderUse& use) {
  return {.hidden = config.hidden_size,
          .heads = config.num_attention_heads,
          .inner = config.intermediate_size,
          .causal = true,
          .mask = use.mask,
          .eps = config.layer_norm_eps,
          .activation = "relu",
          .attention_dropout = config.dropout,
          .activation_dropout = config.dropout,
          .dropout = config.dropout};
}

Body head_body(const EncoderLmConfig& config) {
  Recorder r;
  const Value x = r.tokens("hidden", config.hidden_size);
  r.output(ops::linear(r, x, {.weight = "weight", .bias = "bias", .out = config.vocab_size}));
  return r.finish();
}

// Bounds of the uniform draws are those of torch.nn.TransformerEncoderLayer.
std::vector<ParameterSpec> layer_parameters(const PostNormLayer& layer, const std::string& unit) {
  const double from_hidden = 1 / std::sqrt(static_cast<double>(layer.hidden));
  const double from_inner = 1 / std::sqrt(static_cast<double>(layer.inner));
  const double joined = std::sqrt(6 / (4 * static_cast<double>(layer.hidden)));  // of one matrix [3 h, h]
  auto parameters = post_norm_parameters(layer, unit, 0);
  for (ParameterSpec& parameter : parameters) {
    const auto of = [&](const char* module) { return parameter.name.starts_with(unit + module); };
    if (of(".mlp.down.")) {
      parameter = uniform(std::move(parameter), from_inner);
    } else if (of(".mlp.up.") || of(".attention.output.weight")) {
      parameter = uniform(std::move(parameter), from_hidden);
    } else if (parameter.joined == "qkv") {
      parameter = uniform(std::move(parameter), joined);
    }
  }
  return parameters;
}

}  // namespace

GraphSpec encoder_lm_spec(const EncoderLmConfig& config, const WorkSize& work, const DecoderUse& use) {
  refuse(find_problem(config), "encoder_lm");
  refuse_work(work, config.max_position_embeddings);
  const std::int64_t h = config.hidden_size;
  const double range = config.initializer_range;
  DecoderGraph graph("encoder_lm", h, work, use);
  graph.add_embed({"encoder_lm.embed",
                   embed_body(config),
                   {uniform(table("embed.weight", config.vocab_size, h, 0, split_dim(0)), range)}});
  const PostNormLayer layer = layer_of(config, use);
  const SharedBody body = post_norm_body(layer);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    graph.add_layer({"encoder_lm.layer", body, layer_parameters(layer, graph.next_layer())});
  }
  graph.add_head({"encoder_lm.head",
                  head_body(config),
                  {uniform(matrix("head.weight", config.vocab_size, h, 0, split_dim(0)), range),
                   bias("head.bias", config.vocab_size, split_dim(0))}},
                 config.vocab_size);
  return graph.finish();
}

}  // namespace orthant
