#include <algorithm>
#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"
#include "orthant/program/sizes.h"

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
  std::vector<ParameterSpec> layer_matrices(const std::string& layer, bool has_experts) const;
  std::vector<ParameterSpec> layer_vectors(const std::string& layer) const;
  Body embed_body() const;
  Body layer_body(bool has_experts) const;
  ops::RouterLoss router_loss() const;
  Value mlp(Recorder& r, Value x) const;
  ops::RoutedTokens experts(Recorder& r, Value x, Value labels) const;
  void add_experts(std::vector<ParameterSpec>& parameters, const std::string& layer) const;
  Body head_body() const;

  const LlamaConfig& config_;
  const SharedBody layer_body_ = layer_body(/*has_experts=*/false);
  const SharedBody expert_body_ = config_.experts.count > 0 ? SharedBody(layer_body(/*has_experts=*/true))
                                                            : SharedBody();
};

Body LlamaBuilder::embed_body() const {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  r.output(ops::embedding(r, {{.ids = ids, .table = "weight", .entries = config_.vocab_size}}, config_.hidden_size));
  return r.finish();
}

Value LlamaBuilder::mlp(Recorder& r, Value x) const {
  const auto bias = [&](const char* name) { return config_.mlp_bias ? std::string(name) : std::string(); };
  const Value gate_up = ops::linear(
      r, x, {.weight = "gate_up", .bias = bias("gate_up_bias"), .out = 2 * config_.intermediate_size, .joined = true});
  return ops::linear(r, ops::activation(r, gate_up, "swiglu"),
                     {.weight = "mlp.w2.weight", .bias = bias("mlp.w2.bias"), .out = config_.hidden_size});
}

// Of one layer: the mean of all counts.
ops::RouterLoss LlamaBuilder::router_loss() const {
  const auto layers = static_cast<double>(std::max<std::int64_t>(1, config_.num_expert_layers()));
  return {config_.experts.balance_loss / layers, config_.experts.z_loss / layers};
}

ops::RoutedTokens LlamaBuilder::experts(Recorder& r, Value x, Value labels) const {
  const ops::Experts kind = {.router = "router.weight",
                             .inputs = "experts_in",
                             .outputs = "experts_out",
                             .count = config_.experts.count,
                             .per_token = config_.experts.per_token,
                             .inner = config_.expert_inner(),
                             .normalised = config_.experts.normalised,
                             .sigmoid = config_.experts.sigmoid,
                             .groups = config_.experts.groups,
                             .groups_taken = config_.experts.groups_taken,
                             .scaling = config_.experts.scaling,
                             .capacity = labels.id < 0 ? 0 : config_.experts.capacity(work_.sequence),
                             .bias = config_.experts.bias_rate > 0 ? "router.bias" : "",
                             .loss = router_loss()};
  const std::int64_t inner = config_.experts.shared_inner;
  if (inner == 0) return ops::experts(r, x, kind, labels);
  // The shared expert works while tokens travel.
  const ops::SentTokens sent = ops::send_to_experts(r, x, kind, labels);
  const Value gate_up = ops::linear(r, x, {.weight = "shared_gate_up", .out = 2 * inner, .joined = true});
  const Value active = ops::activation(r, gate_up, "swiglu");
  const ops::SentTokens answered = ops::run_experts(r, sent, kind);
  const Value shared = ops::linear(r, active, {.weight = "shared_expert.w2.weight", .out = config_.hidden_size});
  const Value gate = ops::linear(r, x, {.weight = "shared_expert_gate.weight", .out = 1});
  const Value gated = ops::token_gate(r, shared, gate);
  const ops::RoutedTokens routed = ops::combine(r, answered);
  return {ops::add(r, routed.y, gated), routed.loss};
}

Body LlamaBuilder::layer_body(bool has_experts) const {
  Recorder r;
  const std::int64_t d = config_.head_size();
  const ops::Heads heads{config_.num_attention_heads, config_.kv_heads(), d};
  const auto bias = [](bool has, const char* name) { return has ? std::string(name) : std::string(); };
  const bool biased = config_.attention_bias;
  const double eps = config_.rms_norm_eps;

  const Value x = r.tokens("hidden", config_.hidden_size);
  const Value mask = use_.mask ? r.field("attention_mask", Sym::tokens, Number::mask) : Value{};
  const Value documents = this->documents(r);
  const Value labels = has_experts && use_.loss ? r.field("labels", Sym::tokens, Number::index) : Value{};
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
  const Value middle = ops::add(r,
                                ops::linear(r, attended,
                                            {.weight = "attention.wo.weight",
                                             .bias = bias(config_.output_bias(), "attention.wo.bias"),
                                             .out = config_.hidden_size}),
                                x);
  const Value normed2 = ops::rms_norm(r, middle, "norm2.weight", eps);
  const ops::RoutedTokens made = has_experts ? experts(r, normed2, labels) : ops::RoutedTokens{mlp(r, normed2), {}};
  r.output(ops::add(r, made.y, middle));
  if (made.loss.id >= 0) r.output(made.loss);
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

// Gates and ups of expert 0, of expert 1 and so on, then what leads back; each expert's own names. Then the expert that
// every token passes.
void LlamaBuilder::add_experts(std::vector<ParameterSpec>& parameters, const std::string& layer) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t f = config_.expert_inner();
  const std::int64_t count = config_.experts.count;
  const double stddev = config_.initializer_range;
  parameters.push_back(along_sequence(matrix(layer + ".router.weight", count, h, stddev)));
  const auto add = [&](std::int64_t expert, const char* name, Shape shape, int cut_dim, const char* joined) {
    auto parameter = matrix(layer + ".experts." + std::to_string(expert) + name, shape[0], shape[1], stddev,
                            split_dim(cut_dim), joined);
    parameter.expert = ExpertPlace{expert, count};
    parameters.push_back(std::move(parameter));
  };
  for (std::int64_t e = 0; e < count; ++e) {
    add(e, ".w1.weight", {f, h}, 0, "experts_in");
    add(e, ".w3.weight", {f, h}, 0, "experts_in");
  }
  for (std::int64_t e = 0; e < count; ++e) add(e, ".w2.weight", {h, f}, 1, "experts_out");
  const std::int64_t inner = config_.experts.shared_inner;
  if (inner == 0) return;
  const std::string shared = layer + ".shared_expert";
  parameters.push_back(matrix(shared + ".w1.weight", inner, h, stddev, split_dim(0), "shared_gate_up"));
  parameters.push_back(matrix(shared + ".w3.weight", inner, h, stddev, split_dim(0), "shared_gate_up"));
  parameters.push_back(matrix(shared + ".w2.weight", h, inner, stddev, split_dim(1)));
  parameters.push_back(along_sequence(matrix(shared + "_gate.weight", 1, h, stddev)));
}

std::vector<ParameterSpec> LlamaBuilder::layer_matrices(const std::string& layer, bool has_experts) const {
  const std::int64_t h = config_.hidden_size;
  const std::int64_t d = config_.head_size();
  const std::int64_t query = config_.num_attention_heads * d;
  const std::int64_t key = config_.kv_heads() * d;
  const std::int64_t f = config_.intermediate_size;
  const double stddev = config_.initializer_range;
  std::vector<ParameterSpec> matrices = {
      matrix(layer + ".attention.wq.weight", query, h, stddev, split_dim(0, d), "qkv"),
      matrix(layer + ".attention.wk.weight", key, h, stddev, split_dim(0, d), "qkv"),
      matrix(layer + ".attention.wv.weight", key, h, stddev, split_dim(0, d), "qkv"),
      matrix(layer + ".attention.wo.weight", h, query, stddev, split_dim(1, d))};
  if (has_experts) {
    add_experts(matrices, layer);
    return matrices;
  }
  matrices.push_back(matrix(layer + ".mlp.w1.weight", f, h, stddev, split_dim(0), "gate_up"));
  matrices.push_back(matrix(layer + ".mlp.w3.weight", f, h, stddev, split_dim(0), "gate_up"));
  matrices.push_back(matrix(layer + ".mlp.w2.weight", h, f, stddev, split_dim(1)));
  return matrices;
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
  }
  if (config_.output_bias()) vectors.push_back(along_sequence(bias(layer + ".attention.wo.bias", h)));
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
  const bool has_experts = config_.experts.has(index);
  UnitSpec unit = layer_unit(index, has_experts ? "llama.expert_layer" : "llama.layer");
  unit.parameters = layer_matrices(unit.name, has_experts);
  for (auto& parameter : layer_vectors(unit.name)) unit.parameters.push_back(std::move(parameter));
  if (has_experts && config_.experts.bias_rate > 0) {
    unit.parameters.push_back(bias(unit.name + ".router.bias", config_.experts.count));
    unit.parameters.back().trainable = false;
    unit.parameters.back().moved_by_loads = config_.experts.bias_rate;
  }
  unit.body = has_experts ? expert_body_ : layer_body_;
  if (has_experts && use_.loss) {
    unit.inputs.emplace_back("labels");
    unit.auxiliary_loss = unit.name + ".router_loss";
    unit.outputs.push_back(unit.auxiliary_loss);
    spec_.values.push_back(activation_value(unit.auxiliary_loss, {}, statistics_dtype(work_.compute)));
  }
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
