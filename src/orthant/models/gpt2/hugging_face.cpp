#include <fmt/format.h>

#include <array>

#include "orthant/models/gpt2/config.h"
#include "orthant/models/hugging_face_family.h"
#include "orthant/models/hugging_face_json.h"

namespace orthant {
namespace {

constexpr std::array<ModuleRow, 9> kGpt2Body = {{
    {"embed.wte", "wte"},
    {"embed.wpe", "wpe"},
    {"layers.*.ln_1", "h.*.ln_1"},
    {"layers.*.attn.c_attn", "h.*.attn.c_attn", true},
    {"layers.*.attn.c_proj", "h.*.attn.c_proj", true},
    {"layers.*.ln_2", "h.*.ln_2"},
    {"layers.*.mlp.c_fc", "h.*.mlp.c_fc", true},
    {"layers.*.mlp.c_proj", "h.*.mlp.c_proj", true},
    {"head.ln_f", "ln_f"},
}};
constexpr std::array<ModuleRow, 1> kGpt2Head = {{{"head.lm_head", "lm_head"}}};
constexpr std::array<RepeatRow, 1> kGpt2Repeats = {{{"lm_head.weight", "wte.weight", true}}};
constexpr std::array<std::string_view, 4> kGpt2Roots = {"wte.", "wpe.", "h.", "ln_f."};

constexpr NameTable kGpt2Names = {"transformer.", kGpt2Body, {}, kGpt2Head, kGpt2Repeats, kGpt2Roots, "h."};

ModelConfig read_gpt2_folder(JsonReader& reader, const std::string&) {
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

std::string gpt2_config_text(const ModelConfig& model, HuggingFaceHead head, DType dtype) {
  const auto& config = get<Gpt2Config>(model);
  auto json = hugging_face_header("gpt2", head == HuggingFaceHead::none ? "GPT2Model" : "GPT2LMHeadModel", dtype);
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
  return json.dump(2) + "\n";
}

}  // namespace

const HuggingFaceFamily& gpt2_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = {
      .model_types = {"gpt2"},
      .read = read_gpt2_folder,
      .config_text = gpt2_config_text,
      .names = [](const ModelConfig&) -> const NameTable& { return kGpt2Names; },
      .one_meaning = {{"n_embd", "hidden_size"},
                      {"n_layer", "num_hidden_layers"},
                      {"n_head", "num_attention_heads"},
                      {"n_positions", "n_ctx", "max_position_embeddings"}}};
  return kHuggingFace;
}

}  // namespace orthant
