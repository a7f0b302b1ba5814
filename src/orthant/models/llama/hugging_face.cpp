#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"
#include "orthant/models/hugging_face_json.h"
#include "orthant/models/llama/variant.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<ModuleRow, 11> kLlamaBody = {{
    {"embed", "embed_tokens"},
    {"layers.*.attention.wq", "layers.*.self_attn.q_proj"},
    {"layers.*.attention.wk", "layers.*.self_attn.k_proj"},
    {"layers.*.attention.wv", "layers.*.self_attn.v_proj"},
    {"layers.*.attention.wo", "layers.*.self_attn.o_proj"},
    {"layers.*.mlp.w1", "layers.*.mlp.gate_proj"},
    {"layers.*.mlp.w2", "layers.*.mlp.down_proj"},
    {"layers.*.mlp.w3", "layers.*.mlp.up_proj"},
    {"layers.*.norm1", "layers.*.input_layernorm"},
    {"layers.*.norm2", "layers.*.post_attention_layernorm"},
    {"head.norm", "norm"},
}};
constexpr std::array<ModuleRow, 1> kLlamaHead = {{{"head", "lm_head"}}};
constexpr std::array<RepeatRow, 1> kLlamaRepeats = {{{"lm_head.weight", "embed_tokens.weight", true}}};
constexpr std::array<std::string_view, 3> kLlamaRoots = {"embed_tokens.", "layers.", "norm."};

void refuse_partial_rotation(JsonReader& reader) {
  const auto part = reader.find<double>("partial_rotary_factor");
  if (part && *part != 1) {
    reader.fail("partial_rotary_factor", fmt::format("is {}: only whole heads are turned here", *part), kOtherModel);
  }
}

// Older files have rope_theta and rope_scaling, newer ones rope_parameters with both. What is inside goes first.
void read_rope(JsonReader& reader, LlamaConfig& config) {
  refuse_partial_rotation(reader);
  config.rope_theta = reader.find<double>("rope_theta").value_or(10000.0);
  const bool older = is_given(reader, "rope_scaling") && !reader.require_raw("rope_scaling").empty();
  const char* key = older ? "rope_scaling" : "rope_parameters";
  if (!is_given(reader, key)) return;
  JsonReader rope = reader.object(key);
  refuse_partial_rotation(rope);
  config.rope_theta = rope.find<double>("rope_theta").value_or(config.rope_theta);
  config.rope_scaling = read_rope_scaling(reader, key);
  const auto kind = config.rope_scaling.kind;
  if (kind != RopeScaling::Kind::llama3 && kind != RopeScaling::Kind::yarn) return;
  if (const auto original = reader.find<std::int64_t>("original_max_position_embeddings")) {
    config.rope_scaling.original_max_position_embeddings = *original;
  }
}

// Layers that differ in what a token sees.
void refuse_mixed_layers(JsonReader& reader, std::string_view kind) {
  for (const auto& layer : reader.find<std::vector<std::string>>("layer_types").value_or(std::vector<std::string>())) {
    if (layer != kind) {
      reader.fail("layer_types", fmt::format("has {}: all layers are {} here", layer, kind), kOtherModel);
    }
  }
}

void refuse_other_routers(const LlamaConfig& config) {
  if (config.experts.chooses_by_softmax()) return;
  throw ConfigError(
      fmt::format("models of type {} choose experts by softmax in Hugging Face's form, without groups and "
                  "scaling, and this one does not",
                  family_of(config).name),
      {.remedy = "keep the checkpoint in orthant's form"});
}

Json rope_json(const LlamaConfig& config) {
  const auto& scaling = config.rope_scaling;
  Json rope = {{"rope_type", rope_kind_name(scaling.kind)}};
  if (scaling.kind == RopeScaling::Kind::none) return rope;
  const auto longest = config.max_position_embeddings;
  const auto original =
      scaling.original_max_position_embeddings != 0 ? scaling.original_max_position_embeddings : longest;
  rope["factor"] = scaling.factor != 0 ? scaling.factor : static_cast<double>(longest) / static_cast<double>(original);
  if (scaling.kind == RopeScaling::Kind::llama3 || scaling.kind == RopeScaling::Kind::yarn) {
    rope["original_max_position_embeddings"] = original;
  }
  if (scaling.kind == RopeScaling::Kind::llama3) {
    rope["low_freq_factor"] = scaling.low_freq_factor;
    rope["high_freq_factor"] = scaling.high_freq_factor;
  }
  if (scaling.kind == RopeScaling::Kind::yarn) {
    rope["beta_fast"] = scaling.beta_fast;
    rope["beta_slow"] = scaling.beta_slow;
    rope["truncate"] = scaling.truncate;
    if (scaling.attention_factor != 0) rope["attention_factor"] = scaling.attention_factor;
    if (scaling.mscale != 0) rope["mscale"] = scaling.mscale;
    if (scaling.mscale_all_dim != 0) rope["mscale_all_dim"] = scaling.mscale_all_dim;
  }
  return rope;
}

}  // namespace

std::vector<ModuleRow> llama_modules(const LlamaVariant& variant) {
  std::vector<ModuleRow> modules(kLlamaBody.begin(), kLlamaBody.end());
  modules.insert(modules.end(), variant.modules.begin(), variant.modules.end());
  return modules;
}

NameTable llama_names(const std::vector<ModuleRow>& modules) {
  return {"model.", modules, {}, kLlamaHead, kLlamaRepeats, kLlamaRoots, "layers."};
}

ModelConfig read_llama_folder(JsonReader& reader, const LlamaVariant& variant) {
  LlamaConfig config = variant.defaults();
  const auto size = [&](std::string_view key, std::int64_t& field) {
    field = reader.find<std::int64_t>(key).value_or(field);
  };
  size("hidden_size", config.hidden_size);
  size("num_hidden_layers", config.num_hidden_layers);
  size("num_attention_heads", config.num_attention_heads);
  size("num_key_value_heads", config.num_key_value_heads);
  size("head_dim", config.head_dim);
  size("intermediate_size", config.intermediate_size);
  size("vocab_size", config.vocab_size);
  size("max_position_embeddings", config.max_position_embeddings);
  config.rms_norm_eps = reader.find<double>("rms_norm_eps").value_or(1e-6);
  if (const auto key = variant.attention_bias; !key.empty()) {
    config.attention_bias = reader.find<bool>(key).value_or(config.attention_bias);
  }
  config.attention_dropout = reader.find<double>("attention_dropout").value_or(0);
  if (variant.mlp_bias) config.mlp_bias = reader.find<bool>("mlp_bias").value_or(false);
  if (variant.read_experts != nullptr) {
    variant.read_experts(reader, config);
    const auto balance = reader.find<double>("router_aux_loss_coef");
    config.experts.balance_loss = balance.value_or(config.experts.balance_loss);
  }
  if (variant.read_keys != nullptr) variant.read_keys(reader, config);
  refuse_mixed_layers(reader, config.sliding_window > 0 ? "sliding_attention" : "full_attention");
  config.tie_word_embeddings = reader.find<bool>("tie_word_embeddings").value_or(false);
  config.initializer_range = reader.find<double>("initializer_range").value_or(0.02);
  const auto activation = reader.find<std::string>("hidden_act").value_or("silu");
  if (activation_named(activation) != ActivationFunction::silu) {
    reader.fail("hidden_act", fmt::format("the activation \"{}\" is not supported in a Llama", activation),
                "Llama models with silu can be read");
  }
  read_rope(reader, config);
  refuse(find_problem(config), reader);
  config.num_key_value_heads = config.kv_heads();
  config.head_dim = config.head_size();
  return config;
}

// Both generations read this file: older ones rope_theta and rope_scaling, newer ones rope_parameters.
std::string llama_config_text(const ModelConfig& model, HuggingFaceHead head, DType dtype) {
  const auto& config = get<LlamaConfig>(model);
  auto json = hugging_face_header(
      family_of(config).name,
      fmt::format("{}{}", config.variant->class_name, head == HuggingFaceHead::none ? "Model" : "ForCausalLM"), dtype);
  json["hidden_size"] = config.hidden_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_key_value_heads"] = config.kv_heads();
  json["head_dim"] = config.head_size();
  json["intermediate_size"] = config.intermediate_size;
  json["vocab_size"] = config.vocab_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["rms_norm_eps"] = config.rms_norm_eps;
  json["hidden_act"] = "silu";
  if (const auto key = config.variant->attention_bias; !key.empty()) json[std::string(key)] = config.attention_bias;
  json["attention_dropout"] = config.attention_dropout;
  if (config.variant->mlp_bias) json["mlp_bias"] = config.mlp_bias;
  if (config.variant->write_keys != nullptr) config.variant->write_keys(config, json);
  if (config.experts.count > 0) {
    json["router_aux_loss_coef"] = config.experts.balance_loss;
    refuse_other_routers(config);
  }
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  auto rope = rope_json(config);
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = config.rope_scaling.kind == RopeScaling::Kind::none ? Json() : rope;
  rope["rope_theta"] = config.rope_theta;
  json["rope_parameters"] = std::move(rope);
  return json.dump(2) + "\n";
}

HuggingFaceFamily llama_like_folders(const LlamaVariant& variant) {
  HuggingFaceFamily folders = {.model_types = {std::string(variant.name)},
                               .config_text = llama_config_text,
                               .one_meaning = {{"rope_theta", "rope_scaling", "rope_parameters"}}};
  if (const auto& [older, newer] = variant.one_meaning; !older.empty()) {
    folders.one_meaning.push_back({std::string(older), std::string(newer)});
  }
  return folders;
}

}  // namespace orthant
