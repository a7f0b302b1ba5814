#include "orthant/models/encoder_lm/config.h"

#include "orthant/models/presets.h"

namespace orthant {

EncoderLmConfig read_encoder_lm(JsonReader& reader, const EncoderLmConfig& defaults) {
  EncoderLmConfig config = defaults;
  if (const auto name = reader.find<std::string>("preset")) {
    refuse(find_preset_problem(encoder_lm_family(), *name), reader);
    config = encoder_lm_preset(*name);
  }
  reader.read("hidden_size", config.hidden_size);
  reader.read("num_hidden_layers", config.num_hidden_layers);
  reader.read("num_attention_heads", config.num_attention_heads);
  reader.read("intermediate_size", config.intermediate_size);
  reader.read("vocab_size", config.vocab_size);
  reader.read("max_position_embeddings", config.max_position_embeddings);
  reader.read("layer_norm_eps", config.layer_norm_eps);
  reader.read("dropout", config.dropout);
  reader.read("initializer_range", config.initializer_range);
  reader.read("freeze", config.freeze);
  refuse(find_problem(config), reader);
  return config;
}

Problem find_problem(const EncoderLmConfig& config) {
  if (auto problem = check_width("hidden_size", config.hidden_size)) return problem;
  if (auto problem = check_size("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers)) return problem;
  if (auto problem = check_width("num_attention_heads", config.num_attention_heads)) return problem;
  if (auto problem = check_width("intermediate_size", config.intermediate_size)) return problem;
  if (auto problem = check_entries("vocab_size", config.vocab_size)) return problem;
  if (auto problem = check_entries("max_position_embeddings", config.max_position_embeddings)) return problem;
  if (auto problem = check_divides({"num_attention_heads", config.num_attention_heads},
                                   {"hidden_size", config.hidden_size}, Remedy::change_either)) {
    return problem;
  }
  if (auto problem = check_probability("dropout", config.dropout)) return problem;
  if (auto problem = check_positive("layer_norm_eps", config.layer_norm_eps)) return problem;
  return check_positive("initializer_range", config.initializer_range);
}

namespace {

ModelFacts encoder_lm_facts(const ModelConfig& model) {
  const auto& config = get<EncoderLmConfig>(model);
  ModelFacts facts;
  facts.vocab_size = config.vocab_size;
  facts.max_sequence = config.max_sequence();
  facts.freeze = config.freeze;
  facts.chain = biased_chain(config, config.intermediate_size);
  facts.chain->final_norm = false;
  facts.chain->head_bias = true;
  facts.chain->dropout = config.dropout > 0;
  return facts;
}

}  // namespace

const Family& encoder_lm_family() {
  static const Family kFamily = {
      .name = "encoder_lm",
      .task = Task::next_token,
      .read = [](JsonReader& section, const ModelConfig*) -> ModelConfig { return read_encoder_lm(section); },
      .facts = encoder_lm_facts,
      .shorten = [](ModelConfig& config, std::int64_t layers) { keep_layers(get<EncoderLmConfig>(config), layers); },
      .spec = [](const ModelConfig& config,
                 const WorkSize& work) { return encoder_lm_spec(get<EncoderLmConfig>(config), work); },
      .forward =
          [](const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
            return encoder_lm_spec(get<EncoderLmConfig>(config), work, {.loss = false, .mask = options.mask});
          },
      .presets = encoder_lm_presets,
      .without_folder = {.path_message = "there are no Hugging Face models of kind encoder_lm",
                         .path_remedy = "remove path",
                         .export_remedy =
                             "its checkpoints are safetensors files that other programs can read as they are"}};
  return kFamily;
}

}  // namespace orthant
