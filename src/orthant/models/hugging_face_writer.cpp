#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/models/hugging_face.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

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

Json header(std::string_view type, std::string_view architecture, DType dtype) {
  return {{"architectures", {architecture}},
          {"model_type", type},
          {"dtype", dtype_name(dtype)},
          {"torch_dtype", dtype_name(dtype)}};
}

// Both generations read this file: older ones rope_theta and rope_scaling, newer ones rope_parameters.
Json config_json(const LlamaConfig& config, HuggingFaceHead head, DType dtype) {
  constexpr std::array<std::string_view, kLlamaFamilies.size()> kClasses = {"Llama", "Qwen3", "Mistral"};
  const auto family = config.family;
  const auto name = kClasses[static_cast<std::size_t>(family)];
  Json json = header(llama_family_name(family),
                     fmt::format("{}{}", name, head == HuggingFaceHead::none ? "Model" : "ForCausalLM"), dtype);
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
  if (family != LlamaFamily::mistral) json["attention_bias"] = config.attention_bias;
  json["attention_dropout"] = config.attention_dropout;
  if (family == LlamaFamily::llama) json["mlp_bias"] = config.mlp_bias;
  if (family == LlamaFamily::qwen3) json["use_sliding_window"] = false;
  if (family == LlamaFamily::mistral)
    json["sliding_window"] = config.sliding_window > 0 ? Json(config.sliding_window) : Json();
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  auto rope = rope_json(config);
  json["rope_theta"] = config.rope_theta;
  json["rope_scaling"] = config.rope_scaling.kind == RopeScaling::Kind::none ? Json() : rope;
  rope["rope_theta"] = config.rope_theta;
  json["rope_parameters"] = std::move(rope);
  return json;
}

Json config_json(const Gpt2Config& config, HuggingFaceHead head, DType dtype) {
  Json json = header("gpt2", head == HuggingFaceHead::none ? "GPT2Model" : "GPT2LMHeadModel", dtype);
  json["n_embd"] = config.hidden_size;
  json["n_layer"] = config.num_hidden_layers;
  json["n_head"] = config.num_attention_heads;
  json["n_inner"] = config.inner_size();
  json["n_positions"] = config.max_position_embeddings;
  json["n_ctx"] = config.max_position_embeddings;
  json["vocab_size"] = config.vocab_size;
  json["layer_norm_epsilon"] = config.layer_norm_epsilon;
  json["activation_function"] = activation_name(config.activation_function);
  json["resid_pdrop"] = config.resid_pdrop;
  json["embd_pdrop"] = config.embd_pdrop;
  json["attn_pdrop"] = config.attn_pdrop;
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["initializer_range"] = config.initializer_range;
  return json;
}

Json config_json(const BertModelConfig& model, HuggingFaceHead head, DType dtype) {
  const BertConfig& config = model.encoder;
  const bool roberta = config.position_offset != 0;
  if (roberta && config.position_offset != config.pad_token_id + 1) {
    throw ConfigError(
        fmt::format("position_offset is {} with pad_token_id {}: RoBERTa counts positions from pad_token_id "
                    "+ 1",
                    config.position_offset, config.pad_token_id),
        {.remedy = "Hugging Face has no such model: it cannot be exported"});
  }
  const bool bare = head == HuggingFaceHead::none;
  Json json = roberta ? header("roberta", bare ? "RobertaModel" : "RobertaForMaskedLM", dtype)
                      : header("bert", bare ? "BertModel" : "BertForMaskedLM", dtype);
  json["hidden_size"] = config.hidden_size;
  json["num_hidden_layers"] = config.num_hidden_layers;
  json["num_attention_heads"] = config.num_attention_heads;
  json["intermediate_size"] = config.intermediate_size;
  json["vocab_size"] = config.vocab_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  json["type_vocab_size"] = config.type_vocab_size;
  json["layer_norm_eps"] = config.layer_norm_eps;
  json["hidden_act"] = activation_name(config.hidden_act);
  json["hidden_dropout_prob"] = config.hidden_dropout_prob;
  json["attention_probs_dropout_prob"] = config.attention_probs_dropout_prob;
  json["pad_token_id"] = config.pad_token_id;
  json["position_embedding_type"] = "absolute";
  json["tie_word_embeddings"] = true;
  json["initializer_range"] = config.initializer_range;
  return json;
}

[[noreturn]] Json refuse_kind(std::string_view kind, std::string remedy) {
  throw ConfigError(fmt::format("a model of kind {} cannot be written as a Hugging Face folder: there is no such model "
                                "there",
                                kind),
                    {.remedy = std::move(remedy)});
}

Json config_json(const TrimodalConfig&, HuggingFaceHead, DType) {
  refuse_kind("trimodal", "write one of its encoders with --tower primary or --tower secondary");
}

Json config_json(const EncoderLmConfig&, HuggingFaceHead, DType) {
  refuse_kind("encoder_lm", "its checkpoints are safetensors files that other programs can read as they are");
}

}  // namespace

std::string hugging_face_config_text(const ModelConfig& config, HuggingFaceHead head, DType dtype) {
  return std::visit([&](const auto& model) { return config_json(model, head, dtype); }, config).dump(2) + "\n";
}

}  // namespace orthant
