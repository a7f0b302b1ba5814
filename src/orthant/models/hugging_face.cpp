#include "orthant/models/hugging_face.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// There, and not null.
bool given(JsonReader& reader, std::string_view key) {
  return reader.has(key) && !reader.require_raw(key).is_null();
}

// The first of the names that is given; the default otherwise.
template <typename T>
T first_of(JsonReader& reader, std::initializer_list<std::string_view> keys, T standard) {
  for (const auto key : keys) {
    if (const auto found = reader.find<T>(key)) return *found;
  }
  return standard;
}

constexpr const char* kOtherModel = "this model cannot be computed here: use one without it";

void refuse_true(JsonReader& reader, std::string_view key, std::string_view why) {
  if (reader.find<bool>(key).value_or(false)) {
    reader.fail(key, fmt::format("is true: {} is not supported", why), kOtherModel);
  }
}

// What any model type may have and what would make it another model.
void refuse_other_mathematics(JsonReader& reader) {
  refuse_true(reader, "is_encoder_decoder", "an encoder with a decoder");
  refuse_true(reader, "add_cross_attention", "cross attention");
  if (given(reader, "quantization_config")) {
    reader.fail("quantization_config", "quantized weights are not supported",
                "use the folder of the model before quantization");
  }
  if (given(reader, "pruned_heads") && !reader.require_raw("pruned_heads").empty()) {
    reader.fail("pruned_heads",
                fmt::format("found {}: pruned heads are not supported", reader.require_raw("pruned_heads").dump()),
                kOtherModel);
  }
}

ActivationFunction read_activation_name(JsonReader& reader, std::string_view key, ActivationFunction standard) {
  const auto name = reader.find<std::string>(key);
  if (!name) return standard;
  if (const auto found = activation_named(*name)) return *found;
  reader.fail(key, fmt::format("the activation \"{}\" is not supported", *name),
              "models with gelu, gelu_new (its tanh form), relu or silu can be read");
}

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
  const bool older = given(reader, "rope_scaling") && !reader.require_raw("rope_scaling").empty();
  const char* key = older ? "rope_scaling" : "rope_parameters";
  if (!given(reader, key)) return;
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

// Null: all tokens before a token are seen.
void read_window(JsonReader& reader, LlamaConfig& config) {
  constexpr std::string_view kKey = "sliding_window";
  if (!reader.has(kKey)) return;
  config.sliding_window = reader.find<std::int64_t>(kKey).value_or(0);
  if (given(reader, kKey) && config.sliding_window < 1) {
    reader.fail(kKey, fmt::format("is {}: a token sees at least itself", config.sliding_window),
                "a window of 1 token or more, or null for none, can be read");
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

ModelConfig read_llama_config(JsonReader& reader, LlamaFamily family) {
  LlamaConfig config = llama_defaults(family);
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
  if (family != LlamaFamily::mistral) config.attention_bias = reader.find<bool>("attention_bias").value_or(false);
  config.attention_dropout = reader.find<double>("attention_dropout").value_or(0);
  if (family == LlamaFamily::llama) config.mlp_bias = reader.find<bool>("mlp_bias").value_or(false);
  if (family == LlamaFamily::mistral) read_window(reader, config);
  if (family == LlamaFamily::qwen3) refuse_true(reader, "use_sliding_window", "a sliding window in some of the layers");
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

ModelConfig read_gpt2_config(JsonReader& reader) {
  Gpt2Config config;
  const auto size = [&](std::initializer_list<std::string_view> keys, std::int64_t& field) {
    field = first_of<std::int64_t>(reader, keys, field);
  };
  size({"n_embd", "hidden_size"}, config.hidden_size);
  size({"n_layer", "num_hidden_layers"}, config.num_hidden_layers);
  size({"n_head", "num_attention_heads"}, config.num_attention_heads);
  size({"n_inner"}, config.intermediate_size);
  size({"vocab_size"}, config.vocab_size);
  size({"n_positions", "max_position_embeddings"}, config.max_position_embeddings);
  config.layer_norm_epsilon = reader.find<double>("layer_norm_epsilon").value_or(1e-5);
  config.activation_function = read_activation_name(reader, "activation_function", ActivationFunction::gelu_new);
  config.resid_pdrop = reader.find<double>("resid_pdrop").value_or(0.1);
  config.embd_pdrop = reader.find<double>("embd_pdrop").value_or(0.1);
  config.attn_pdrop = reader.find<double>("attn_pdrop").value_or(0.1);
  config.tie_word_embeddings = reader.find<bool>("tie_word_embeddings").value_or(true);
  config.initializer_range = reader.find<double>("initializer_range").value_or(0.02);
  refuse_true(reader, "scale_attn_by_inverse_layer_idx", "attention divided by the layer's number");
  if (!reader.find<bool>("scale_attn_weights").value_or(true)) {
    reader.fail("scale_attn_weights", "is false: attention is always divided by sqrt(head size) here", kOtherModel);
  }
  refuse(find_problem(config), reader);
  config.intermediate_size = config.inner_size();
  return config;
}

// `positions_after_padding`: RoBERTa counts positions from the padding token's number on.
ModelConfig read_bert_config(JsonReader& reader, std::int64_t vocabulary, bool positions_after_padding) {
  BertModelConfig model;
  BertConfig& config = model.encoder;
  const auto size = [&](std::string_view key, std::int64_t& field) {
    field = reader.find<std::int64_t>(key).value_or(field);
  };
  config.vocab_size = vocabulary;
  config.pad_token_id = positions_after_padding ? 1 : 0;
  size("hidden_size", config.hidden_size);
  size("num_hidden_layers", config.num_hidden_layers);
  size("num_attention_heads", config.num_attention_heads);
  size("intermediate_size", config.intermediate_size);
  size("vocab_size", config.vocab_size);
  size("max_position_embeddings", config.max_position_embeddings);
  size("type_vocab_size", config.type_vocab_size);
  size("pad_token_id", config.pad_token_id);
  config.position_offset = positions_after_padding ? config.pad_token_id + 1 : 0;
  config.layer_norm_eps = reader.find<double>("layer_norm_eps").value_or(1e-12);
  config.hidden_act = read_activation_name(reader, "hidden_act", ActivationFunction::gelu);
  config.hidden_dropout_prob = reader.find<double>("hidden_dropout_prob").value_or(0.1);
  config.attention_probs_dropout_prob = reader.find<double>("attention_probs_dropout_prob").value_or(0.1);
  config.initializer_range = reader.find<double>("initializer_range").value_or(0.02);
  refuse_true(reader, "is_decoder", "an encoder under a causal mask");
  const auto positions = reader.find<std::string>("position_embedding_type").value_or("absolute");
  if (positions != "absolute") {
    reader.fail("position_embedding_type", fmt::format("\"{}\" is not supported", positions),
                "models with absolute positions can be read");
  }
  refuse(find_problem(config), reader);
  return model;
}

const std::array<std::string, 8> kModelTypes = {"llama", "qwen3",   "mistral",     "gpt2",
                                                "bert",  "roberta", "xlm-roberta", "camembert"};

ModelConfig read_config(JsonReader reader) {
  const auto type = reader.require<std::string>("model_type");
  refuse_other_mathematics(reader);
  if (const auto family = llama_family_named(type)) return read_llama_config(reader, *family);
  if (type == "gpt2") return read_gpt2_config(reader);
  if (type == "bert") return read_bert_config(reader, 30522, /*positions_after_padding=*/false);
  if (type == "roberta") return read_bert_config(reader, 50265, /*positions_after_padding=*/true);
  if (type == "xlm-roberta" || type == "camembert") return read_bert_config(reader, 30522, true);
  reader.fail("model_type", fmt::format("models of type \"{}\" are not supported", type),
              fmt::format("use one of {}", fmt::join(kModelTypes, ", ")));
}

}  // namespace

ModelConfig parse_hugging_face_config(std::string_view text, const std::string& source) {
  return read_config(JsonReader(JsonDocument::parse(text, {.source = source, .errors = JsonErrorKind::kData})));
}

ModelConfig read_hugging_face_config(const fs::path& folder) {
  const std::string needs =
      "name a folder with config.json and model.safetensors (or its shards), as save_pretrained() or `hf download NAME "
      "--local-dir FOLDER` writes it; nothing is downloaded here";
  if (!is_folder(folder)) {
    throw DataError(fmt::format("{}: no such model folder", folder.string()), {.remedy = needs});
  }
  const auto file = folder / "config.json";
  if (!is_there(file)) {
    throw DataError(fmt::format("{}: no model folder, it has no config.json", folder.string()), {.remedy = needs});
  }
  return read_hugging_face_config_file(file);
}

ModelConfig read_hugging_face_config_file(const fs::path& file) {
  return parse_hugging_face_config(read_text_file(file, JsonOptions().max_bytes), file.string());
}

}  // namespace orthant
