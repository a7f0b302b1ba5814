#include <fmt/format.h>

#include <array>

#include "orthant/base/error.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/hugging_face_family.h"
#include "orthant/models/hugging_face_json.h"

namespace orthant {
namespace {

constexpr std::array<ModuleRow, 12> kBertBody = {{
    {"embed.word", "embeddings.word_embeddings"},
    {"embed.position", "embeddings.position_embeddings"},
    {"embed.token_type", "embeddings.token_type_embeddings"},
    {"embed.norm", "embeddings.LayerNorm"},
    {"layers.*.attention.query", "encoder.layer.*.attention.self.query"},
    {"layers.*.attention.key", "encoder.layer.*.attention.self.key"},
    {"layers.*.attention.value", "encoder.layer.*.attention.self.value"},
    {"layers.*.attention.output", "encoder.layer.*.attention.output.dense"},
    {"layers.*.attention.norm", "encoder.layer.*.attention.output.LayerNorm"},
    {"layers.*.mlp.up", "encoder.layer.*.intermediate.dense"},
    {"layers.*.mlp.down", "encoder.layer.*.output.dense"},
    {"layers.*.mlp.norm", "encoder.layer.*.output.LayerNorm"},
}};
constexpr std::array<ModuleRow, 1> kBertPooler = {{{"pooler.dense", "pooler.dense"}}};
constexpr std::array<ModuleRow, 3> kBertHead = {{
    {"head.dense", "cls.predictions.transform.dense"},
    {"head.norm", "cls.predictions.transform.LayerNorm"},
    {"head", "cls.predictions"},
}};
constexpr std::array<RepeatRow, 2> kBertRepeats = {{
    {"cls.predictions.decoder.weight", "embeddings.word_embeddings.weight", true},
    {"cls.predictions.decoder.bias", "cls.predictions.bias"},
}};
constexpr std::array<ModuleRow, 3> kRobertaHead = {{
    {"head.dense", "lm_head.dense"},
    {"head.norm", "lm_head.layer_norm"},
    {"head", "lm_head"},
}};
constexpr std::array<RepeatRow, 2> kRobertaRepeats = {{
    {"lm_head.decoder.weight", "embeddings.word_embeddings.weight", true},
    {"lm_head.decoder.bias", "lm_head.bias"},
}};
constexpr std::array<std::string_view, 2> kBertRoots = {"embeddings.", "encoder."};

constexpr NameTable kBertNames = {"bert.",      kBertBody,  kBertPooler,      kBertHead,
                                  kBertRepeats, kBertRoots, "encoder.layer.", /*always_tied=*/true};
constexpr NameTable kRobertaNames = {"roberta.",      kBertBody,  kBertPooler,      kRobertaHead,
                                     kRobertaRepeats, kBertRoots, "encoder.layer.", /*always_tied=*/true};

// `positions_after_padding`: RoBERTa counts positions from the padding token's number on.
ModelConfig read_encoder(JsonReader& reader, std::int64_t vocabulary, bool positions_after_padding) {
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

ModelConfig read_bert_folder(JsonReader& reader, const std::string& type) {
  if (type == "bert") return read_encoder(reader, 30522, /*positions_after_padding=*/false);
  return read_encoder(reader, type == "roberta" ? 50265 : 30522, /*positions_after_padding=*/true);
}

std::string bert_config_text(const ModelConfig& model, HuggingFaceHead head, DType dtype) {
  const BertConfig& config = get<BertModelConfig>(model).encoder;
  const bool roberta = config.position_offset != 0;
  if (roberta && config.position_offset != config.pad_token_id + 1) {
    throw ConfigError(
        fmt::format("position_offset is {} with pad_token_id {}: RoBERTa counts positions from pad_token_id "
                    "+ 1",
                    config.position_offset, config.pad_token_id),
        {.remedy = "Hugging Face has no such model: it cannot be exported"});
  }
  const bool bare = head == HuggingFaceHead::none;
  auto json = roberta ? hugging_face_header("roberta", bare ? "RobertaModel" : "RobertaForMaskedLM", dtype)
                      : hugging_face_header("bert", bare ? "BertModel" : "BertForMaskedLM", dtype);
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
  return json.dump(2) + "\n";
}

// Types that have RoBERTa's model under a name of their own.
std::string class_of_type(const std::string& type, std::string name) {
  const std::string instead = type == "xlm-roberta" ? "XLMRoberta" : type == "camembert" ? "Camembert" : "";
  if (!instead.empty()) name.replace(0, std::string_view("Roberta").size(), instead);
  return name;
}

}  // namespace

const NameTable& bert_names(const BertConfig& config) {
  return config.counts_tokens() ? kRobertaNames : kBertNames;
}

const HuggingFaceFamily& bert_hugging_face() {
  static const HuggingFaceFamily kHuggingFace = {.model_types = {"bert", "roberta", "xlm-roberta", "camembert"},
                                                 .read = read_bert_folder,
                                                 .config_text = bert_config_text,
                                                 .names = [](const ModelConfig& config) -> const NameTable& {
                                                   return bert_names(get<BertModelConfig>(config).encoder);
                                                 },
                                                 .class_name = class_of_type};
  return kHuggingFace;
}

}  // namespace orthant
