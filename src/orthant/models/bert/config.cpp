#include "orthant/models/bert/config.h"

#include <fmt/format.h>

#include "orthant/models/hugging_face_names.h"
#include "orthant/models/presets.h"

namespace orthant {

BertConfig read_bert(JsonReader& reader, const BertConfig& defaults) {
  BertConfig config = defaults;
  if (const auto name = reader.find<std::string>("preset")) {
    refuse(find_preset_problem(bert_family(), *name), reader);
    config = bert_preset(*name);
  }
  reader.read("hidden_size", config.hidden_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
  reader.read("intermediate_size", config.intermediate_size);
  reader.read("vocab_size", config.vocab_size);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("type_vocab_size", config.type_vocab_size);
  reader.read("layer_norm_eps", config.layer_norm_eps);
  config.hidden_act = read_activation(reader, "hidden_act", config.hidden_act);
  reader.read("hidden_dropout_prob", config.hidden_dropout_prob);
  reader.read("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  reader.read("pad_token_id", config.pad_token_id);
  // RoBERTa's rule goes on to hold when its padding token is overridden.
  if (config.counts_tokens()) config.position_offset = config.pad_token_id + 1;
  reader.read("position_offset", config.position_offset);
  reader.read("initializer_range", config.initializer_range);
  if (const auto path = reader.find<std::string>("path")) config.path = path;
  refuse(find_problem(config), reader);
  return config;
}

Problem find_problem(const BertConfig& config) {
  if (auto problem = check_width("hidden_size", config.hidden_size)) return problem;
  if (auto problem = check_size("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers)) return problem;
  if (auto problem = check_width("num_attention_heads", config.num_attention_heads)) return problem;
  if (auto problem = check_width("intermediate_size", config.intermediate_size)) return problem;
  if (auto problem = check_entries("vocab_size", config.vocab_size)) return problem;
  if (auto problem = check_entries("max_position_embeddings", config.max_position_embeddings)) return problem;
  if (auto problem = check_entries("type_vocab_size", config.type_vocab_size)) return problem;
  if (auto problem = check_divides({"num_attention_heads", config.num_attention_heads},
                                   {"hidden_size", config.hidden_size}, Remedy::change_either)) {
    return problem;
  }
  if (auto problem = check_size("pad_token_id", config.pad_token_id, 0, config.vocab_size - 1)) return problem;
  if (auto problem = check_size("position_offset", config.position_offset, 0, config.max_position_embeddings - 1)) {
    return problem;
  }
  if (auto problem = check_probability("hidden_dropout_prob", config.hidden_dropout_prob)) return problem;
  if (auto problem = check_probability("attention_probs_dropout_prob", config.attention_probs_dropout_prob)) {
    return problem;
  }
  if (auto problem = check_positive("layer_norm_eps", config.layer_norm_eps)) return problem;
  return check_positive("initializer_range", config.initializer_range);
}

BertModelConfig read_bert_model(JsonReader& reader, const BertModelConfig& defaults) {
  BertModelConfig config;
  config.encoder = read_bert(reader, defaults.encoder);
  config.freeze = reader.get<std::vector<std::string>>("freeze", defaults.freeze);
  return config;
}

namespace {

ModelFacts bert_facts(const ModelConfig& model) {
  const BertConfig& config = get<BertModelConfig>(model).encoder;
  ModelFacts facts;
  facts.vocab_size = config.vocab_size;
  facts.max_sequence = config.max_sequence();
  facts.freeze = get<BertModelConfig>(model).freeze;
  facts.field_limits = {{"token_type_ids", config.type_vocab_size}};
  facts.pad_token_id = config.pad_token_id;
  if (config.path) facts.sources.push_back({*config.path, &bert_names(config), ""});
  facts.chain = biased_chain(config, config.intermediate_size);
  facts.chain->positions = config.max_position_embeddings;
  facts.chain->token_types = config.type_vocab_size;
  facts.chain->embedding_norm = true;
  facts.chain->head_dense = true;
  facts.chain->head_bias = true;
  facts.chain->tied = true;
  facts.chain->dropout = config.hidden_dropout_prob > 0;
  facts.chain->causal = false;
  return facts;
}

}  // namespace

const Family& bert_family() {
  static const Family kFamily = {
      .name = "bert",
      .task = Task::masked_token,
      .read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
        return read_bert_model(section, folder != nullptr ? get<BertModelConfig>(*folder) : BertModelConfig());
      },
      .facts = bert_facts,
      .shorten = [](ModelConfig& config,
                    std::int64_t layers) { keep_layers(get<BertModelConfig>(config).encoder, layers); },
      .spec = [](const ModelConfig& config,
                 const WorkSize& work) { return bert_model_spec(get<BertModelConfig>(config), work); },
      .forward =
          [](const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
            return bert_forward_spec(get<BertModelConfig>(config), work, options.pooler);
          },
      .presets = bert_presets,
      .hugging_face = &bert_hugging_face()};
  return kFamily;
}

}  // namespace orthant
