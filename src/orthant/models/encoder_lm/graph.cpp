#include <cmath>
#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/models/post_norm_body.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

class EncoderLmBuilder : private DecoderGraph {
 public:
  EncoderLmBuilder(const EncoderLmConfig& config, const WorkSize& work, const DecoderUse& use)
      : DecoderGraph("encoder_lm", config.hidden_size, work, use), config_(config) {}

  GraphSpec build() {
    add_embed();
    for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) add_layer(i);
    add_head();
    return finish();
  }

 private:
  void add_embed();
  void add_layer(std::int64_t index);
  void add_head();
  std::vector<ParameterSpec> layer_parameters(const std::string& layer) const;
  Body embed_body() const;
  Body layer_body() const;
  Body head_body() const;

  const EncoderLmConfig& config_;
  const SharedBody layer_body_ = layer_body();
};

Body EncoderLmBuilder::embed_body() const {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  const Value words =
      ops::embedding(r, {{.ids = ids, .table = "weight", .entries = config_.vocab_size}}, config_.hidden_size);
  const Value placed = ops::add_waves(r, words, std::sqrt(static_cast<double>(config_.hidden_size)));
  r.output(ops::dropout(r, placed, config_.dropout, "dropout"));
  return r.finish();
}

Body EncoderLmBuilder::layer_body() const {
  return post_norm_body({.hidden = config_.hidden_size,
                         .heads = config_.num_attention_heads,
                         .inner = config_.intermediate_size,
                         .causal = true,
                         .mask = use_.mask,
                         .eps = config_.layer_norm_eps,
                         .activation = "relu",
                         .attention_dropout = config_.dropout,
                         .activation_dropout = config_.dropout,
                         .dropout = config_.dropout});
}

Body EncoderLmBuilder::head_body() const {
  Recorder r;
  const Value x = r.tokens("hidden", config_.hidden_size);
  r.output(ops::linear(r, x, {.weight = "weight", .bias = "bias", .out = config_.vocab_size}));
  return r.finish();
}

void EncoderLmBuilder::add_embed() {
  UnitSpec unit = make_unit("embed", "encoder_lm.embed", {"input_ids"}, {"hidden.0"});
  unit.parameters = {uniform(table("embed.weight", config_.vocab_size, config_.hidden_size, 0, split_dim(0)),
                             config_.initializer_range)};
  unit.backward_reads_parameters = false;
  unit.body = embed_body();
  add(std::move(unit), hidden(0));
}

// Bounds of the uniform draws are those of torch.nn.TransformerEncoderLayer.
std::vector<ParameterSpec> EncoderLmBuilder::layer_parameters(const std::string& layer) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t f = config_.intermediate_size;
  const Split by_head = split_dim(0, config_.head_size());
  const double from_hidden = 1 / std::sqrt(static_cast<double>(h));
  const double from_inner = 1 / std::sqrt(static_cast<double>(f));
  const double joined = std::sqrt(6 / (4 * static_cast<double>(h)));  // of one matrix [3 h, h]
  const auto projection = [&](const char* name) {
    return uniform(matrix(layer + ".attention." + name + ".weight", h, h, 0, by_head, "qkv"), joined);
  };
  return {projection("query"),
          projection("key"),
          projection("value"),
          uniform(matrix(layer + ".attention.output.weight", h, h, 0, split_dim(1, config_.head_size())), from_hidden),
          uniform(matrix(layer + ".mlp.up.weight", f, h, 0, split_dim(0)), from_hidden),
          uniform(matrix(layer + ".mlp.down.weight", h, f, 0, split_dim(1)), from_inner),
          bias(layer + ".attention.query.bias", h, by_head, "qkv_bias"),
          bias(layer + ".attention.key.bias", h, by_head, "qkv_bias"),
          bias(layer + ".attention.value.bias", h, by_head, "qkv_bias"),
          along_sequence(bias(layer + ".attention.output.bias", h)),
          along_sequence(norm_weight(layer + ".attention.norm.weight", h)),
          along_sequence(bias(layer + ".attention.norm.bias", h)),
          uniform(bias(layer + ".mlp.up.bias", f, split_dim(0)), from_hidden),
          along_sequence(uniform(bias(layer + ".mlp.down.bias", h), from_inner)),
          along_sequence(norm_weight(layer + ".mlp.norm.weight", h)),
          along_sequence(bias(layer + ".mlp.norm.bias", h))};
}

void EncoderLmBuilder::add_layer(std::int64_t index) {
  UnitSpec unit = layer_unit(index, "encoder_lm.layer");
  unit.parameters = layer_parameters(unit.name);
  unit.body = layer_body_;
  add(std::move(unit), hidden(index + 1));
}

void EncoderLmBuilder::add_head() {
  UnitSpec unit = head_unit("encoder_lm.head", config_.num_hidden_layers);
  unit.body = head_body();
  unit.parameters = {uniform(matrix("head.weight", config_.vocab_size, config_.hidden_size, 0, split_dim(0)),
                             config_.initializer_range),
                     bias("head.bias", config_.vocab_size, split_dim(0))};
  add(std::move(unit), logits(config_.vocab_size));
}

}  // namespace

GraphSpec encoder_lm_spec(const EncoderLmConfig& config, const WorkSize& work, const DecoderUse& use) {
  refuse(find_problem(config), "encoder_lm");
  refuse_work(work, config.max_position_embeddings);
  return EncoderLmBuilder(config, work, use).build();
}

}  // namespace orthant
