#include <algorithm>
#include <utility>

#include "orthant/models/decoder_graph.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/parameter_kinds.h"
#include "orthant/ops/functions.h"

namespace orthant {
namespace {

Body embed_body(const LlamaConfig& config) {
  Recorder r;
  const Value ids = r.field("input_ids", Sym::tokens, Number::index);
  r.output(ops::embedding(r, {{.ids = ids, .table = "weight", .entries = config.vocab_size}}, config.hidden_size));
  return r.finish();
}

Value mlp(Recorder& r, const LlamaConfig& config, Value x) {
  const auto bias = [&](const char* name) { return config.mlp_bias ? std::string(name) : std::string(); };
  const Value gate_up = ops::linear(
      r, x, {.weight = "gate_up", .bias = bias("gate_up_bias"), .out = 2 * config.intermediate_size, .joined = true});
  return ops::linear(r, ops::activation(r, gate_up, "swiglu"),
                     {.weight = "mlp.w2.weight", .bias = bias("mlp.w2.bias"), .out = config.hidden_size});
}

// Of one layer: the mean of all counts.
ops::RouterLoss router_loss(const LlamaConfig& config) {
  const auto layers = static_cast<double>(std::max<std::int64_t>(1, config.num_expert_layers()));
  return {config.experts.balance_loss / layers, config.experts.z_loss / layers};
}

ops::RoutedTokens experts(Recorder& r, const LlamaConfig& config, const DecoderGraph& graph, Value x, Value labels) {
  const ops::Experts kind = {.router = "router.weight",
                             .inputs = "experts_in",
                             .outputs = "experts_out",
                             .count = config.experts.count,
                             .per_token = config.experts.per_token,
                             .inner = config.expert_inner(),
                             .normalised = config.experts.normalised,
                             .sigmoid = config.experts.sigmoid,
                             .groups = config.experts.groups,
                             .groups_taken = config.experts.groups_taken,
                             .scaling = config.experts.scaling,
                             .capacity = labels.id < 0 ? 0 : config.experts.capacity(graph.work().sequence),
                             .bias = config.experts.bias_rate > 0 ? "router.bias" : "",
                             .loss = router_loss(config)};
  const std::int64_t inner = config.experts.shared_inner;
  if (inner == 0) return ops::experts(r, x, kind, labels);
  // The shared expert works while tokens travel.
  const ops::SentTokens sent = ops::send_to_experts(r, x, kind, labels);
  const Value gate_up = ops::linear(r, x, {.weight = "shared_gate_up", .out = 2 * inner, .joined = true});
  const Value active = ops::activation(r, gate_up, "swiglu");
  const ops::SentTokens answered = ops::run_experts(r, sent, kind);
  const Value shared = ops::linear(r, active, {.weight = "shared_expert.w2.weight", .out = config.hidden_size});
  const Value gate = ops::linear(r, x, {.weight = "shared_expert_gate.weight", .out = 1});
  const Value gated = ops::token_gate(r, shared, gate);
  const ops::RoutedTokens routed = ops::combine(r, answered);
  return {ops::add(r, routed.y, gated), routed.loss};
}

Body layer_body(const LlamaConfig& config, const DecoderGraph& graph, bool has_experts) {
  Recorder r;
  const std::int64_t d = config.head_size();
  const ops::Heads heads{config.num_attention_heads, config.kv_heads(), d};
  const auto bias = [](bool has, const char* name) { return has ? std::string(name) : std::string(); };
  const bool biased = config.attention_bias;
  const double eps = config.rms_norm_eps;
  const bool remade = has_experts;  // beside products of experts it costs nothing to make norms again

  const Value x = r.tokens("hidden", config.hidden_size);
  const Value mask = graph.mask(r);
  const Value documents = graph.documents(r);
  const Value labels = has_experts && graph.use().loss ? r.field("labels", Sym::tokens, Number::index) : Value{};
  const Value qkv = ops::linear(r, ops::rms_norm(r, x, "norm1.weight", eps, remade),
                                {.weight = "qkv",
                                 .bias = bias(biased, "qkv_bias"),
                                 .out = (heads.heads + 2 * heads.kv_heads) * d,
                                 .joined = true});
  const Value normed =
      config.norms_heads()
          ? ops::head_norm(r, qkv, heads,
                           {.query = "attention.q_norm.weight", .key = "attention.k_norm.weight", .eps = eps})
          : qkv;
  const Value turned =
      ops::rotary(r, normed, heads,
                  {config.rope_theta, config.max_position_embeddings, as_numbers(config.rope_scaling)}, documents);
  const Value attended = ops::attention(r, turned, mask, heads,
                                        {.causal = true,
                                         .dropout = config.attention_dropout,
                                         .site = "attention.probabilities",
                                         .window = config.sliding_window},
                                        documents);
  const Value middle = ops::add(r,
                                ops::linear(r, attended,
                                            {.weight = "attention.wo.weight",
                                             .bias = bias(config.output_bias(), "attention.wo.bias"),
                                             .out = config.hidden_size}),
                                x);
  const Value normed2 = ops::rms_norm(r, middle, "norm2.weight", eps, remade);
  const ops::RoutedTokens made =
      has_experts ? experts(r, config, graph, normed2, labels) : ops::RoutedTokens{mlp(r, config, normed2), {}};
  r.output(ops::add(r, made.y, middle));
  if (made.loss.id >= 0) r.output(made.loss);
  return r.finish();
}

Body head_body(const LlamaConfig& config) {
  Recorder r;
  const Value x = r.tokens("hidden", config.hidden_size);
  const Value normed = ops::rms_norm(r, x, "norm.weight", config.rms_norm_eps, config.experts.count > 0);
  r.output(ops::linear(r, normed, {.weight = "weight", .out = config.vocab_size}));
  return r.finish();
}

// Gates and ups of expert 0, of expert 1 and so on, then what leads back; each expert's own names. Then the expert that
// every token passes.
void add_experts(std::vector<ParameterSpec>& parameters, const LlamaConfig& config, const std::string& layer) {
  const std::int64_t h = config.hidden_size;
  const std::int64_t f = config.expert_inner();
  const std::int64_t count = config.experts.count;
  const double stddev = config.initializer_range;
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
  const std::int64_t inner = config.experts.shared_inner;
  if (inner == 0) return;
  const std::string shared = layer + ".shared_expert";
  parameters.push_back(matrix(shared + ".w1.weight", inner, h, stddev, split_dim(0), "shared_gate_up"));
  parameters.push_back(matrix(shared + ".w3.weight", inner, h, stddev, split_dim(0), "shared_gate_up"));
  parameters.push_back(matrix(shared + ".w2.weight", h, inner, stddev, split_dim(1)));
  parameters.push_back(along_sequence(matrix(shared + "_gate.weight", 1, h, stddev)));
}

std::vector<ParameterSpec> layer_matrices(const LlamaConfig& config, const std::string& layer, bool has_experts) {
  const std::int64_t h = config.hidden_size;
  const std::int64_t d = config.head_size();
  const std::int64_t query = config.num_attention_heads * d;
  const std::int64_t key = config.kv_heads() * d;
  const std::int64_t f = config.intermediate_size;
  const double stddev = config.initializer_range;
  std::vector<ParameterSpec> matrices = {
      matrix(layer + ".attention.wq.weight", query, h, stddev, split_dim(0, d), "qkv"),
      matrix(layer + ".attention.wk.weight", key, h, stddev, split_dim(0, d), "qkv"),
      matrix(layer + ".attention.wv.weight", key, h, stddev, split_dim(0, d), "qkv"),
      matrix(layer + ".attention.wo.weight", h, query, stddev, split_dim(1, d))};
  if (has_experts) {
    add_experts(matrices, config, layer);
    return matrices;
  }
  matrices.push_back(matrix(layer + ".mlp.w1.weight", f, h, stddev, split_dim(0), "gate_up"));
  matrices.push_back(matrix(layer + ".mlp.w3.weight", f, h, stddev, split_dim(0), "gate_up"));
  matrices.push_back(matrix(layer + ".mlp.w2.weight", h, f, stddev, split_dim(1)));
  return matrices;
}

std::vector<ParameterSpec> layer_vectors(const LlamaConfig& config, const std::string& layer) {
  const std::int64_t h = config.hidden_size;
  const std::int64_t d = config.head_size();
  const std::int64_t f = config.intermediate_size;
  std::vector<ParameterSpec> vectors;
  if (config.attention_bias) {
    const std::int64_t key = config.kv_heads() * d;
    vectors.push_back(bias(layer + ".attention.wq.bias", config.num_attention_heads * d, split_dim(0, d), "qkv_bias"));
    vectors.push_back(bias(layer + ".attention.wk.bias", key, split_dim(0, d), "qkv_bias"));
    vectors.push_back(bias(layer + ".attention.wv.bias", key, split_dim(0, d), "qkv_bias"));
  }
  if (config.output_bias()) vectors.push_back(along_sequence(bias(layer + ".attention.wo.bias", h)));
  if (config.norms_heads()) {
    vectors.push_back(per_head(norm_weight(layer + ".attention.q_norm.weight", d)));
    vectors.push_back(per_head(norm_weight(layer + ".attention.k_norm.weight", d)));
  }
  if (config.mlp_bias) {
    vectors.push_back(bias(layer + ".mlp.w1.bias", f, split_dim(0), "gate_up_bias"));
    vectors.push_back(bias(layer + ".mlp.w3.bias", f, split_dim(0), "gate_up_bias"));
    vectors.push_back(along_sequence(bias(layer + ".mlp.w2.bias", h)));
  }
  vectors.push_back(along_sequence(norm_weight(layer + ".norm1.weight", h)));
  vectors.push_back(along_sequence(norm_weight(layer + ".norm2.weight", h)));
  return vectors;
}

DecoderUnit layer_unit(const LlamaConfig& config, const std::string& layer, const SharedBody& body, bool has_experts) {
  DecoderUnit unit{has_experts ? "llama.expert_layer" : "llama.layer", body,
                   layer_matrices(config, layer, has_experts)};
  for (auto& parameter : layer_vectors(config, layer)) unit.parameters.push_back(std::move(parameter));
  if (has_experts && config.experts.bias_rate > 0) {
    unit.parameters.push_back(bias(layer + ".router.bias", config.experts.count));
    unit.parameters.back().trainable = false;
    unit.parameters.back().moved_by_loads = config.experts.bias_rate;
  }
  return unit;
}

DecoderUnit head_unit(const LlamaConfig& config) {
  DecoderUnit unit{"llama.head", head_body(config), {}};
  const std::int64_t h = config.hidden_size;
  if (config.tie_word_embeddings) {
    unit.borrowed = {"embed.weight"};
  } else {
    unit.parameters = {matrix("head.weight", config.vocab_size, h, config.initializer_range, split_dim(0))};
  }
  unit.parameters.push_back(along_sequence(norm_weight("head.norm.weight", h)));
  return unit;
}

}  // namespace

GraphSpec llama_spec(const LlamaConfig& config, const WorkSize& work, const DecoderUse& use) {
  refuse(find_problem(config), family_of(config).name);
  refuse_work(work, config.max_sequence());
  const std::int64_t h = config.hidden_size;
  DecoderGraph graph(std::string(family_of(config).name), h, work, use);
  graph.add_embed({"llama.embed",
                   embed_body(config),
                   {table("embed.weight", config.vocab_size, h, config.initializer_range, split_dim(0))}});
  const SharedBody dense = layer_body(config, graph, /*has_experts=*/false);
  const SharedBody routed =
      config.experts.count > 0 ? SharedBody(layer_body(config, graph, /*has_experts=*/true)) : SharedBody();
  for (std::int64_t i = 0; i < config.num_hidden_layers; ++i) {
    const bool has_experts = config.experts.has(i);
    graph.add_layer(layer_unit(config, graph.next_layer(), has_experts ? routed : dense, has_experts),
                    /*has_loss=*/has_experts && use.loss);
  }
  graph.add_head(head_unit(config), config.vocab_size);
  return graph.finish();
}

}  // namespace orthant
