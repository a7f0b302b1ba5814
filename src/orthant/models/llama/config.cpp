#include "orthant/models/llama/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "orthant/models/choice.h"
#include "orthant/models/hugging_face_names.h"
#include "orthant/models/llama/variant.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace {

// Of the scaling, and of what it asks of the rest.
Problem find_rope_problem(const LlamaConfig& config) {
  const RopeScaling& scaling = config.rope_scaling;
  if (auto problem = find_problem(scaling)) {
    problem->key = "rope_scaling." + problem->key;
    return problem;
  }
  if (scaling.kind == RopeScaling::Kind::dynamic && config.head_size() < 4) {
    return ConfigProblem{"head_dim",
                         fmt::format("heads of {} channels cannot have dynamic rope_scaling", config.head_size()),
                         "set head_dim to 4 or more, or another rope_scaling.rope_type"};
  }
  if (scaling.kind == RopeScaling::Kind::yarn && config.rope_theta <= 1) {
    return ConfigProblem{"rope_theta", fmt::format("{} is not above 1, as yarn rope_scaling needs", config.rope_theta),
                         "set rope_theta above 1 (usual is 10000)"};
  }
  return std::nullopt;
}

// Keys are those of most families with experts.
Problem find_expert_problem(const LlamaConfig& config) {
  const ExpertLayers& experts = config.experts;
  if (config.variant->read_experts == nullptr) return std::nullopt;
  if (auto problem = check_width("num_experts", experts.count)) return problem;
  if (auto problem = check_size("num_experts_per_tok", experts.per_token, 1, experts.count)) return problem;
  if (auto problem = check_width("moe_intermediate_size", config.expert_inner())) return problem;
  if (auto problem = check_size("shared_expert_intermediate_size", experts.shared_inner, 0, kMaxWidth)) return problem;
  if (auto problem = check_size("decoder_sparse_step", experts.step, 1, kMaxLayers)) return problem;
  if (auto problem = check_size("n_group", experts.groups, 1, experts.count)) return problem;
  if (auto problem = check_divides({"n_group", experts.groups}, {"num_experts", experts.count}, Remedy::change_divisor))
    return problem;
  if (auto problem = check_size("topk_group", experts.groups_taken, 1, experts.groups)) return problem;
  const std::int64_t choice = experts.count / experts.groups * experts.groups_taken;
  if (experts.per_token > choice) {
    return ConfigProblem{"num_experts_per_tok",
                         fmt::format("{} experts take a token, but its groups have {}", experts.per_token, choice),
                         fmt::format("set num_experts_per_tok to {} or less, or a larger topk_group", choice)};
  }
  if (auto problem = check_not_negative("router_aux_loss_coef", experts.balance_loss)) return problem;
  if (auto problem = check_not_negative("router_z_loss_coef", experts.z_loss)) return problem;
  if (auto problem = check_not_negative("capacity_factor", experts.capacity_factor)) return problem;
  if (auto problem = check_not_negative("router_bias_update_rate", experts.bias_rate)) return problem;
  return check_positive("routed_scaling_factor", experts.scaling);
}

void read_router(JsonReader& reader, ExpertLayers& experts) {
  reader.read("router_aux_loss_coef", experts.balance_loss);
  reader.read("router_z_loss_coef", experts.z_loss);
  reader.read("capacity_factor", experts.capacity_factor);
  reader.read("router_bias_update_rate", experts.bias_rate);
  constexpr std::array<bool, 2> kScores = {false, true};
  experts.sigmoid = read_choice<bool>(
      reader, "scoring_func", kScores, [](bool sigmoid) { return sigmoid ? "sigmoid" : "softmax"; }, experts.sigmoid);
  reader.read("n_group", experts.groups);
  reader.read("topk_group", experts.groups_taken);
  reader.read("routed_scaling_factor", experts.scaling);
}

// Null: every token before a token is seen.
void read_window(JsonReader& reader, std::int64_t& window) {
  constexpr std::string_view kKey = "sliding_window";
  window = reader.has(kKey) ? reader.find<std::int64_t>(kKey).value_or(0) : reader.get<std::int64_t>(kKey, window);
}

}  // namespace

void read_dense_layers(JsonReader& reader, std::vector<std::int64_t>& layers) {
  using Layers = std::vector<std::int64_t>;
  constexpr std::string_view kKey = "mlp_only_layers";
  layers = reader.has(kKey) ? reader.find<Layers>(kKey).value_or(Layers()) : reader.get<Layers>(kKey, layers);
}

bool ExpertLayers::has(std::int64_t layer) const {
  return count > 0 && (layer + 1) % step == 0 && std::ranges::find(dense_layers, layer) == dense_layers.end();
}

bool LlamaConfig::norms_heads() const {
  return variant->norms_heads;
}

bool LlamaConfig::output_bias() const {
  return attention_bias && variant->output_bias;
}

std::int64_t ExpertLayers::capacity(std::int64_t sequence) const {
  const double equal = static_cast<double>(sequence * per_token) / static_cast<double>(count);
  return static_cast<std::int64_t>(std::ceil(std::min(capacity_factor * equal, static_cast<double>(sequence))));
}

std::int64_t LlamaConfig::num_expert_layers() const {
  std::int64_t count = 0;
  for (std::int64_t layer = 0; layer < num_hidden_layers; ++layer) count += experts.has(layer) ? 1 : 0;
  return count;
}

std::int64_t LlamaConfig::max_sequence() const {
  const bool longer = rope_scaling.kind == RopeScaling::Kind::linear || rope_scaling.kind == RopeScaling::Kind::dynamic;
  const auto positions = static_cast<double>(max_position_embeddings);
  if (!longer || rope_scaling.factor <= 1) return max_position_embeddings;
  return static_cast<std::int64_t>(std::min(positions * rope_scaling.factor, static_cast<double>(kMaxEntries)));
}

LlamaConfig read_llama(JsonReader& reader, const LlamaConfig& defaults) {
  LlamaConfig config = defaults;
  if (const auto name = reader.find<std::string>("preset")) {
    refuse(find_preset_problem(family_of(config), *name), reader);
    config = llama_preset(*name);
  }
  // Values that followed from others do so again when those are overridden. The size of heads that have norms follows
  // from nothing.
  if (config.num_key_value_heads == config.num_attention_heads) config.num_key_value_heads = 0;
  if (!config.norms_heads() && config.head_dim * config.num_attention_heads == config.hidden_size) config.head_dim = 0;
  reader.read("hidden_size", config.hidden_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
  // Null stands for the default, which is written down, so that the resolved configuration needs no folder or preset.
  const auto read_nullable = [&](std::string_view key, std::int64_t& field) {
    field = reader.has(key) ? reader.find<std::int64_t>(key).value_or(field) : reader.get<std::int64_t>(key, field);
  };
  read_nullable("num_key_value_heads", config.num_key_value_heads);
  read_nullable("head_dim", config.head_dim);
  reader.read("intermediate_size", config.intermediate_size);
  reader.read("vocab_size", config.vocab_size);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("rope_theta", config.rope_theta);
  reader.read("rms_norm_eps", config.rms_norm_eps);
  config.rope_scaling = read_rope_scaling(reader, "rope_scaling", config.rope_scaling);
  if (const auto key = config.variant->attention_bias; !key.empty()) reader.read(key, config.attention_bias);
  if (config.variant->mlp_bias) reader.read("mlp_bias", config.mlp_bias);
  if (config.variant->sliding_window) read_window(reader, config.sliding_window);
  if (config.variant->read_experts != nullptr) {
    config.variant->read_experts(reader, config);
    read_router(reader, config.experts);
  }
  reader.read("attention_dropout", config.attention_dropout);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  reader.read("initializer_range", config.initializer_range);
  reader.read("freeze", config.freeze);
  if (const auto path = reader.find<std::string>("path")) config.path = path;
  refuse(find_problem(config), reader);
  config.num_key_value_heads = config.kv_heads();
  config.head_dim = config.head_size();
  return config;
}

Problem find_problem(const LlamaConfig& config) {
  const std::int64_t heads = config.num_attention_heads;
  if (auto problem = check_width("hidden_size", config.hidden_size)) return problem;
  if (auto problem = check_width("num_attention_heads", heads)) return problem;
  if (auto problem = check_width("intermediate_size", config.intermediate_size)) return problem;
  if (auto problem = check_entries("vocab_size", config.vocab_size)) return problem;
  if (auto problem = check_entries("max_position_embeddings", config.max_position_embeddings)) return problem;
  if (auto problem = check_size("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers)) return problem;
  if (auto problem = check_size("num_key_value_heads", config.num_key_value_heads, 0, kMaxWidth)) return problem;
  if (auto problem = check_size("head_dim", config.head_dim, 0, kMaxWidth / heads)) return problem;
  if (auto problem = check_size("sliding_window", config.sliding_window, 0, kMaxEntries)) return problem;
  if (auto problem = check_divides({"num_key_value_heads", config.kv_heads()}, {"num_attention_heads", heads},
                                   Remedy::change_divisor)) {
    return problem;
  }
  if (config.head_dim == 0) {
    if (auto problem =
            check_divides({"num_attention_heads", heads}, {"hidden_size", config.hidden_size}, Remedy::change_either)) {
      return problem;
    }
  }
  if (config.head_size() % 2 != 0) {
    return ConfigProblem{"head_dim",
                         fmt::format("heads of {} channels are odd; rotary positions turn pairs", config.head_size()),
                         fmt::format("set head_dim to {}", config.head_size() + 1)};
  }
  if (auto problem = find_expert_problem(config)) return problem;
  if (auto problem = check_probability("attention_dropout", config.attention_dropout)) return problem;
  if (auto problem = check_positive("rope_theta", config.rope_theta)) return problem;
  if (auto problem = find_rope_problem(config)) return problem;
  if (auto problem = check_positive("rms_norm_eps", config.rms_norm_eps)) return problem;
  return check_positive("initializer_range", config.initializer_range);
}

namespace {

ModelFacts llama_facts(const ModelConfig& model) {
  const auto& config = get<LlamaConfig>(model);
  ModelFacts facts;
  facts.vocab_size = config.vocab_size;
  facts.max_sequence = config.max_sequence();
  facts.freeze = config.freeze;
  facts.tied_head = config.tie_word_embeddings;
  facts.positions_end = false;
  if (config.rope_scaling.kind == RopeScaling::Kind::dynamic) facts.dynamic_positions = config.max_position_embeddings;
  if (config.path) facts.sources.push_back({*config.path, &tensor_names(model), ""});
  ChainShape& chain = facts.chain.emplace();
  chain.layers = config.num_hidden_layers;
  chain.hidden = config.hidden_size;
  chain.inner = config.intermediate_size;
  chain.heads = config.num_attention_heads;
  chain.kv_heads = config.kv_heads();
  chain.head_size = config.head_size();
  chain.gated = true;
  chain.attention_biases = config.attention_bias;
  chain.attention_output_bias = config.output_bias() || !config.attention_bias;
  chain.head_norms = config.norms_heads();
  chain.window = config.sliding_window;
  chain.mlp_biases = config.mlp_bias;
  chain.tied = config.tie_word_embeddings;
  chain.dropout = config.attention_dropout > 0;
  const std::int64_t expert_layers = config.num_expert_layers();
  if (expert_layers == 0) return facts;
  chain.experts = config.experts.count;
  chain.experts_per_token = config.experts.per_token;
  chain.expert_inner = config.expert_inner();
  chain.shared_inner = config.experts.shared_inner;
  chain.shared_gate = chain.shared_inner > 0;
  if (expert_layers < config.num_hidden_layers) facts.chain.reset();  // layers differ
  return facts;
}

}  // namespace

const Family& family_of(const LlamaConfig& config) {
  return config.variant->family();
}

Family llama_like_family(const LlamaVariant& variant) {
  return {.name = variant.name,
          .task = Task::next_token,
          .facts = llama_facts,
          .shorten = [](ModelConfig& config, std::int64_t layers) { keep_layers(get<LlamaConfig>(config), layers); },
          .spec = [](const ModelConfig& config,
                     const WorkSize& work) { return llama_spec(get<LlamaConfig>(config), work); },
          .forward =
              [](const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
                return llama_spec(get<LlamaConfig>(config), work, {.loss = false, .mask = options.mask});
              },
          .packs = true,
          .body_in_head = "head.norm."};
}

}  // namespace orthant
