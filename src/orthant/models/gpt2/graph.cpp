#include <cmath>
#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

Body embed_body(const Gpt2Config& config, const DecoderGraph& graph) {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  const Value documents = graph.documents(r);
  using By = ops::Lookup::By;
  const Value sum = ops::embedding(
      r,
      {{.ids = ids, .table = "wte.weight", .entries = config.vocab_size},
       {.ids = documents, .by = graph.work().packed ? By::document_positions : By::positions, .table = "wpe.weight"}},
      config.hidden_size);
  r.output(ops::dropout(r, sum, config.embd_pdrop, "dropout"));
  return r.finish();
}

Body layer_body(const Gpt2Config& config, const DecoderGraph& graph) {
  Recorder r;
  const std::int64_t h = config.hidden_size;
  const ops::Heads heads{config.num_attention_heads, config.num_attention_heads, config.head_size()};
  const double eps = config.layer_norm_epsilon;
  const Value x = r.tokens("hidden", h);
  const Value mask = graph.mask(r);
  const Value documents = graph.documents(r);
  const Value qkv = ops::linear(r, ops::layer_norm(r, x, "ln_1.weight", "ln_1.bias", eps),
                                {.weight = "attn.c_attn.weight", .bias = "attn.c_attn.bias", .out = 3 * h});
  const Value attended = ops::attention(
      r, qkv, mask, heads, {.causal = true, .dropout = config.attn_pdrop, .site = "attn.probabilities"}, documents);
  const Value projected =
      ops::linear(r, attended, {.weight = "attn.c_proj.weight", .bias = "attn.c_proj.bias", .out = h});
  const Value middle = ops::add(r, ops::dropout(r, projected, config.resid_pdrop, "attn.dropout"), x);
  const Value wide = ops::linear(r, ops::layer_norm(r, middle, "ln_2.weight", "ln_2.bias", eps),
                                 {.weight = "mlp.c_fc.weight", .bias = "mlp.c_fc.bias", .out = config.inner_size()});
  const Value active = ops::activation(r, wide, operation_name(config.activation_function));
  const Value narrow = ops::linear(r, active, {.weight = "mlp.c_proj.weight", .bias = "mlp.c_proj.bias", .out = h});
  r.output(ops::add(r, ops::dropout(r, narrow, config.resid_pdrop, "mlp.dropout"), middle));
  return r.finish();
}

Body head_body(const Gpt2Config& config) {
  Recorder r;
  const Value x = r.tokens("hidden", config.hidden_size);
  const Value normed = ops::layer_norm(r, x, "ln_f.weight", "ln_f.bias", config.layer_norm_epsilon);
  r.output(ops::linear(
      r, normed, {.weight = config.tie_word_embeddings ? "wte.weight" : "lm_head.weight", .out = config.vocab_size}));
  return r.finish();
}

std::vector<ParameterSpec> layer_parameters(const Gpt2Config& config, const std::string& layer) {
  const std::int64_t h = config.hidden_size;
  const std::int64_t d = config.head_size();
  const std::int64_t f = config.inner_size();
  const double stddev = config.initializer_range;
  // The matrices that end a residual branch.
  const double end_stddev = stddev / std::sqrt(2 * static_cast<double>(config.num_hidden_layers));
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

DecoderUnit head_unit(const Gpt2Config& config) {
  DecoderUnit unit{"gpt2.head", head_body(config), {}};
  const std::int64_t h = config.hidden_size;
  if (config.tie_word_embeddings) {
    unit.borrowed = {"embed.wte.weight"};
  } else {
    unit.parameters = {matrix("head.lm_head.weight", config.vocab_size, h, config.initializer_range, split_dim(0))};
  }
  unit.parameters.push_back(along_sequence(norm_weight("head.ln_f.weight", h)));
  unit.parameters.push_back(along_sequence(bias("head.ln_f.bias", h)));
  return unit;
}

}  // namespace

GraphSpec gpt2_spec(const Gpt2Config& config, const WorkSize& work, const DecoderUse& use) {
  refuse(find_problem(config), "gpt2");
  refuse_work(work, config.max_position_embeddings);
  const std::int64_t h = config.hidden_size;
  const double stddev = config.initializer_range;
  DecoderGraph graph("gpt2", h, work, use);
  graph.add_embed({"gpt2.embed",
                   embed_body(config, graph),
                   {table("embed.wte.weight", config.vocab_size, h, stddev, split_dim(0)),
                    along_sequence(table("embed.wpe.weight", config.max_position_embeddings, h, stddev))}},
                  /*reads_documents=*/true);
  const SharedBody body = layer_body(config, graph);
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    graph.add_layer({"gpt2.layer", body, layer_parameters(config, graph.next_layer())});
  }
  graph.add_head(head_unit(config), config.vocab_size);
  return graph.finish();
}

}  // namespace orthant
