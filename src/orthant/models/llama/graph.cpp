#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

class LlamaBuilder : private DecoderGraph {
 public:
  LlamaBuilder(const LlamaConfig& config, const WorkSize& work, const DecoderUse& use)
      : DecoderGraph(std::string(family_of(config).name), config.hidden_size, work, use), config_(config) {}

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
  std::vector<ParameterSpec> layer_matrices(const std::string& layer) const;
  std::vector<ParameterSpec> layer_vectors(const std::string& layer) const;
  Body embed_body() const;
  Body layer_body() const;
  Body head_body() const;

  const LlamaConfig& config_;
  const SharedBody layer_body_ = layer_body();
};

Body LlamaBuilder::embed_body() const {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  r.output(ops::embedding(r, {{.ids = ids, .table = "weight", .entries = config_.vocab_size}}, config_.hidden_size));
  return r.finish();
}

Body LlamaBuilder::layer_body() const {
  Recorder r;
  const std::int64_t d = config_.head_size();
  const ops::Heads heads{config_.num_attention_heads, config_.kv_heads(), d};
  const auto bias = [](bool has, const char* name) { return has ? std::string(name) : std::string(); };
  const bool biased = config_.attention_bias;
  const double eps = config_.rms_norm_eps;

  const Value x = r.tokens("hidden", config_.hidden_size);
  const Value mask = use_.mask ? r.field("attention_mask", Sym::tokens, Number::mask) : Value{};
  const Value documents = this->documents(r);
  const Value qkv = ops::linear(r, ops::rms_norm(r, x, "norm1.weight", eps),
                                {.weight = "qkv",
                                 .bias = bias(biased, "qkv_bias"),
                                 .out = (heads.heads + 2 * heads.kv_heads) * d,
                                 .joined = true});
  const Value normed =
      config_.norms_heads()
          ? ops::head_norm(r, qkv, heads,
                           {.query = "attention.q_norm.weight", .key = "attention.k_norm.weight", .eps = eps})
          : qkv;
  const Value turned =
      ops::rotary(r, normed, heads,
                  {config_.rope_theta, config_.max_position_embeddings, as_numbers(config_.rope_scaling)}, documents);
  const Value attended = ops::attention(r, turned, mask, heads,
                                        {.causal = true,
                                         .dropout = config_.attention_dropout,
                                         .site = "attention.probabilities",
                                         .window = config_.sliding_window},
                                        documents);
  const Value middle = ops::add(
      r,
      ops::linear(
          r, attended,
          {.weight = "attention.wo.weight", .bias = bias(biased, "attention.wo.bias"), .out = config_.hidden_size}),
      x);
  const Value gate_up = ops::linear(r, ops::rms_norm(r, middle, "norm2.weight", eps),
                                    {.weight = "gate_up",
                                     .bias = bias(config_.mlp_bias, "gate_up_bias"),
                                     .out = 2 * config_.intermediate_size,
                                     .joined = true});
  const Value down = ops::linear(
      r, ops::activation(r, gate_up, "swiglu"),
      {.weight = "mlp.w2.weight", .bias = bias(config_.mlp_bias, "mlp.w2.bias"), .out = config_.hidden_size});
  r.output(ops::add(r, down, middle));
  return r.finish();
}

Body LlamaBuilder::head_body() const {
  Recorder r;
  const Value x = r.tokens("hidden", config_.hidden_size);
  const Value normed = ops::rms_norm(r, x, "norm.weight", config_.rms_norm_eps);
  r.output(ops::linear(r, normed, {.weight = "weight", .out = config_.vocab_size}));
  return r.finish();
}

void LlamaBuilder::add_embed() {
  UnitSpec unit = make_unit("embed", "llama.embed", {"input_ids"}, {"hidden.0"});
  unit.parameters = {
      table("embed.weight", config_.vocab_size, config_.hidden_size, config_.initializer_range, split_dim(0))};
  unit.backward_reads_parameters = false;
  unit.body = embed_body();
  add(std::move(unit), hidden(0));
}

std::vector<ParameterSpec> LlamaBuilder::layer_matrices(const std::string& layer) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t d = config_.head_size();
  const std::int64_t query = config_.num_attention_heads * d;
  const std::int64_t key = config_.kv_heads() * d;
  const std::int64_t f = config_.intermediate_size;
  const double stddev = config_.initializer_range;
  return {matrix(layer + ".attention.wq.weight", query, h, stddev, split_dim(0, d), "qkv"),
          matrix(layer + ".attention.wk.weight", key, h, stddev, split_dim(0, d), "qkv"),
          matrix(layer + ".attention.wv.weight", key, h, stddev, split_dim(0, d), "qkv"),
          matrix(layer + ".attention.wo.weight", h, query, stddev, split_dim(1, d)),
          matrix(layer + ".mlp.w1.weight", f, h, stddev, split_dim(0), "gate_up"),
          matrix(layer + ".mlp.w3.weight", f, h, stddev, split_dim(0), "gate_up"),
          matrix(layer + ".mlp.w2.weight", h, f, stddev, split_dim(1))};
}

std::vector<ParameterSpec> LlamaBuilder::layer_vectors(const std::string& layer) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t d = config_.head_size();
  const std::int64_t f = config_.intermediate_size;
  std::vector<ParameterSpec> vectors;
  if (config_.attention_bias) {
    const std::int64_t key = config_.kv_heads() * d;
    vectors.push_back(bias(layer + ".attention.wq.bias", config_.num_attention_heads * d, split_dim(0, d), "qkv_bias"));
    vectors.push_back(bias(layer + ".attention.wk.bias", key, split_dim(0, d), "qkv_bias"));
    vectors.push_back(bias(layer + ".attention.wv.bias", key, split_dim(0, d), "qkv_bias"));
    vectors.push_back(along_sequence(bias(layer + ".attention.wo.bias", h)));
  }
  if (config_.norms_heads()) {
    vectors.push_back(per_head(norm_weight(layer + ".attention.q_norm.weight", d)));
    vectors.push_back(per_head(norm_weight(layer + ".attention.k_norm.weight", d)));
  }
  if (config_.mlp_bias) {
    vectors.push_back(bias(layer + ".mlp.w1.bias", f, split_dim(0), "gate_up_bias"));
    vectors.push_back(bias(layer + ".mlp.w3.bias", f, split_dim(0), "gate_up_bias"));
    vectors.push_back(along_sequence(bias(layer + ".mlp.w2.bias", h)));
  }
  vectors.push_back(along_sequence(norm_weight(layer + ".norm1.weight", h)));
  vectors.push_back(along_sequence(norm_weight(layer + ".norm2.weight", h)));
  return vectors;
}

void LlamaBuilder::add_layer(std::int64_t index) {
  UnitSpec unit = layer_unit(index, "llama.layer");
  unit.parameters = layer_matrices(unit.name);
  for (auto& parameter : layer_vectors(unit.name)) unit.parameters.push_back(std::move(parameter));
  unit.body = layer_body_;
  add(std::move(unit), hidden(index + 1));
}

void LlamaBuilder::add_head() {
  UnitSpec unit = head_unit("llama.head", config_.num_hidden_layers);
  unit.body = head_body();
  if (config_.tie_word_embeddings) {
    unit.borrowed = {"embed.weight"};
  } else {
    unit.parameters = {
        matrix("head.weight", config_.vocab_size, config_.hidden_size, config_.initializer_range, split_dim(0))};
  }
  unit.parameters.push_back(along_sequence(norm_weight("head.norm.weight", config_.hidden_size)));
  add(std::move(unit), logits(config_.vocab_size));
}

}  // namespace

GraphSpec llama_spec(const LlamaConfig& config, const WorkSize& work, const DecoderUse& use) {
  refuse(find_problem(config), family_of(config).name);
  refuse_work(work, config.max_sequence());
  return LlamaBuilder(config, work, use).build();
}

}  // namespace orthant
