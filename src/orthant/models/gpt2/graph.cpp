#include <cmath>
#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

class Gpt2Builder : private DecoderGraph {
 public:
  Gpt2Builder(const Gpt2Config& config, const WorkSize& work, const DecoderUse& use)
      : DecoderGraph("gpt2", config.hidden_size, work, use), config_(config) {}

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

  const Gpt2Config& config_;
  const SharedBody layer_body_ = layer_body();
};

Body Gpt2Builder::embed_body() const {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  const Value documents = this->documents(r);
  using By = ops::Lookup::By;
  const Value sum = ops::embedding(
      r,
      {{.ids = ids, .table = "wte.weight", .entries = config_.vocab_size},
       {.ids = documents, .by = work_.packed ? By::document_positions : By::positions, .table = "wpe.weight"}},
      config_.hidden_size);
  r.output(ops::dropout(r, sum, config_.embd_pdrop, "dropout"));
  return r.finish();
}

Body Gpt2Builder::layer_body() const {
  Recorder r;
  const std::int64_t h = config_.hidden_size;
  const ops::Heads heads{config_.num_attention_heads, config_.num_attention_heads, config_.head_size()};
  const double eps = config_.layer_norm_epsilon;
  const Value x = r.tokens("hidden", h);
  const Value mask = use_.mask ? r.field("attention_mask", Sym::tokens, Number::mask) : Value{};
  const Value documents = this->documents(r);
  const Value qkv = ops::linear(r, ops::layer_norm(r, x, "ln_1.weight", "ln_1.bias", eps),
                                {.weight = "attn.c_attn.weight", .bias = "attn.c_attn.bias", .out = 3 * h});
  const Value attended = ops::attention(
      r, qkv, mask, heads, {.causal = true, .dropout = config_.attn_pdrop, .site = "attn.probabilities"}, documents);
  const Value projected =
      ops::linear(r, attended, {.weight = "attn.c_proj.weight", .bias = "attn.c_proj.bias", .out = h});
  const Value middle = ops::add(r, ops::dropout(r, projected, config_.resid_pdrop, "attn.dropout"), x);
  const Value wide = ops::linear(r, ops::layer_norm(r, middle, "ln_2.weight", "ln_2.bias", eps),
                                 {.weight = "mlp.c_fc.weight", .bias = "mlp.c_fc.bias", .out = config_.inner_size()});
  const Value active = ops::activation(r, wide, operation_name(config_.activation_function));
  const Value narrow = ops::linear(r, active, {.weight = "mlp.c_proj.weight", .bias = "mlp.c_proj.bias", .out = h});
  r.output(ops::add(r, ops::dropout(r, narrow, config_.resid_pdrop, "mlp.dropout"), middle));
  return r.finish();
}

Body Gpt2Builder::head_body() const {
  Recorder r;
  const Value x = r.tokens("hidden", config_.hidden_size);
  const Value normed = ops::layer_norm(r, x, "ln_f.weight", "ln_f.bias", config_.layer_norm_epsilon);
  r.output(ops::linear(
      r, normed, {.weight = config_.tie_word_embeddings ? "wte.weight" : "lm_head.weight", .out = config_.vocab_size}));
  return r.finish();
}

void Gpt2Builder::add_embed() {
  const std::int64_t h = config_.hidden_size;
  const double stddev = config_.initializer_range;
  UnitSpec unit = make_unit("embed", "gpt2.embed", {"input_ids"}, {"hidden.0"});
  if (work_.packed) unit.inputs.emplace_back("document_starts");
  unit.parameters = {table("embed.wte.weight", config_.vocab_size, h, stddev, split_dim(0)),
                     along_sequence(table("embed.wpe.weight", config_.max_position_embeddings, h, stddev))};
  unit.backward_reads_parameters = false;
  unit.body = embed_body();
  add(std::move(unit), hidden(0));
}

std::vector<ParameterSpec> Gpt2Builder::layer_parameters(const std::string& layer) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t d = config_.head_size();
  const std::int64_t f = config_.inner_size();
  const double stddev = config_.initializer_range;
  // The matrices that end a residual branch.
  const double end_stddev = stddev / std::sqrt(2 * static_cast<double>(config_.num_hidden_layers));
  Split joined = split_dim(0, d);
  joined.blocks = {h, h, h};
  return {matrix(layer + ".attn.c_attn.weight", 3 * h, h, stddev, joined),
          matrix(layer + ".attn.c_proj.weight", h, h, end_stddev, split_dim(1, d)),
          matrix(layer + ".mlp.c_fc.weight", f, h, stddev, split_dim(0)),
          matrix(layer + ".mlp.c_proj.weight", h, f, end_stddev, split_dim(1)),
          bias(layer + ".attn.c_attn.bias", 3 * h, joined),
          along_sequence(bias(layer + ".attn.c_proj.bias", h)),
          bias(layer + ".mlp.c_fc.bias", f, split_dim(0)),
          along_sequence(bias(layer + ".mlp.c_proj.bias", h)),
          along_sequence(norm_weight(layer + ".ln_1.weight", h)),
          along_sequence(bias(layer + ".ln_1.bias", h)),
          along_sequence(norm_weight(layer + ".ln_2.weight", h)),
          along_sequence(bias(layer + ".ln_2.bias", h))};
}

void Gpt2Builder::add_layer(std::int64_t index) {
  UnitSpec unit = layer_unit(index, "gpt2.layer");
  unit.parameters = layer_parameters(unit.name);
  unit.body = layer_body_;
  add(std::move(unit), hidden(index + 1));
}

void Gpt2Builder::add_head() {
  const std::int64_t h = config_.hidden_size;
  UnitSpec unit = head_unit("gpt2.head", config_.num_hidden_layers);
  unit.body = head_body();
  if (config_.tie_word_embeddings) {
    unit.borrowed = {"embed.wte.weight"};
  } else {
    unit.parameters = {matrix("head.lm_head.weight", config_.vocab_size, h, config_.initializer_range, split_dim(0))};
  }
  unit.parameters.push_back(along_sequence(norm_weight("head.ln_f.weight", h)));
  unit.parameters.push_back(along_sequence(bias("head.ln_f.bias", h)));
  add(std::move(unit), logits(config_.vocab_size));
}

}  // namespace

GraphSpec gpt2_spec(const Gpt2Config& config, const WorkSize& work, const DecoderUse& use) {
  refuse(find_problem(config), "gpt2");
  refuse_work(work, config.max_position_embeddings);
  return Gpt2Builder(config, work, use).build();
}

}  // namespace orthant
