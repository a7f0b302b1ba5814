#include "orthant/models/trimodal/config.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "orthant/models/choice.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace {

constexpr std::array<Pooling, 2> kPoolings = {Pooling::pooler, Pooling::cls};
constexpr std::array<ActivationFunction, 1> kFusionActivations = {ActivationFunction::relu};

std::optional<TabularConfig> read_tabular(JsonReader& reader, const std::optional<TabularConfig>& defaults) {
  const bool given = reader.has("tabular");
  if (given ? reader.require_raw("tabular").is_null() : !defaults) {
    reader.find<std::string>("tabular");  // so that the key is known and its null is listed
    return std::nullopt;
  }
  JsonReader section = reader.object("tabular");
  const auto read_size = [&](std::string_view key, std::int64_t TabularConfig::* field) {
    return defaults ? section.get<std::int64_t>(key, *defaults.*field) : section.require<std::int64_t>(key);
  };
  TabularConfig tabular;
  tabular.input_dim = read_size("input_dim", &TabularConfig::input_dim);
  tabular.hidden_dim = read_size("hidden_dim", &TabularConfig::hidden_dim);
  refuse(check_width("input_dim", tabular.input_dim), section);
  refuse(check_width("hidden_dim", tabular.hidden_dim), section);
  return tabular;
}

FusionConfig read_fusion(JsonReader& reader, FusionConfig fusion) {
  JsonReader section = reader.object("fusion");
  section.read("hidden_size", fusion.hidden_size);
  section.read("dropout", fusion.dropout);
  fusion.activation =
      read_choice<ActivationFunction>(section, "activation", kFusionActivations, activation_name, fusion.activation);
  refuse(check_width("hidden_size", fusion.hidden_size), section);
  refuse(check_probability("dropout", fusion.dropout), section);
  return fusion;
}

// The first key whose values differ between towers that share parameters.
Problem find_difference(const BertConfig& primary, const BertConfig& secondary) {
  Problem found;
  const auto compare = [&](std::string_view key, const auto& left, const auto& right) {
    if (found || left == right) return;
    found = ConfigProblem{
        "shared_towers",
        fmt::format("the towers share parameters, but {} is {} in primary and {} in secondary", key, left, right),
        fmt::format("set secondary.{} to {}, or shared_towers to false", key, left)};
  };
  compare("hidden_size", primary.hidden_size, secondary.hidden_size);
  compare("num_hidden_layers", primary.num_hidden_layers, secondary.num_hidden_layers);
  compare("num_attention_heads", primary.num_attention_heads, secondary.num_attention_heads);
  compare("intermediate_size", primary.intermediate_size, secondary.intermediate_size);
  compare("vocab_size", primary.vocab_size, secondary.vocab_size);
  compare("max_position_embeddings", primary.max_position_embeddings, secondary.max_position_embeddings);
  compare("type_vocab_size", primary.type_vocab_size, secondary.type_vocab_size);
  compare("layer_norm_eps", primary.layer_norm_eps, secondary.layer_norm_eps);
  compare("hidden_act", activation_name(primary.hidden_act), activation_name(secondary.hidden_act));
  compare("pad_token_id", primary.pad_token_id, secondary.pad_token_id);
  compare("position_offset", primary.position_offset, secondary.position_offset);
  compare("path", primary.path.value_or("null"), secondary.path.value_or("null"));
  return found;
}

// A tower's keys. The folder at its `path` gives the defaults of the others, unless a preset does.
BertConfig read_tower(JsonReader& reader, std::string_view key, const BertConfig& defaults) {
  if (reader.is_null(key)) {
    reader.fail(key, "is null, and a trimodal model has two towers",
                fmt::format("leave {} out, or give it sizes of its own; a table with one text column leaves out "
                            "data.secondary_text instead",
                            key));
  }
  JsonReader tower = reader.object(key);
  const auto path = tower.find<std::string>("path");
  if (!path || tower.has("preset")) return read_bert(tower, defaults);
  const ModelConfig folder = read_hugging_face_config(*path);
  const auto* bert = folder.get_if<BertModelConfig>();
  if (bert == nullptr) {
    tower.fail("path", fmt::format("it holds a model of kind {}; a tower is a BERT or RoBERTa", model_kind(folder)),
               "give the folder of a BERT or RoBERTa model");
  }
  return read_bert(tower, bert->encoder);
}

}  // namespace

TrimodalConfig read_trimodal(JsonReader& reader) {
  TrimodalConfig config;
  if (const auto name = reader.find<std::string>("preset")) {
    refuse(find_preset_problem(trimodal_family(), *name), reader);
    config = trimodal_preset(*name);
  }
  reader.read("shared_towers", config.shared_towers);
  config.primary = read_tower(reader, "primary", config.primary);
  config.secondary = read_tower(reader, "secondary", config.shared_towers ? config.primary : config.secondary);
  config.tabular = read_tabular(reader, config.tabular);
  config.fusion = read_fusion(reader, config.fusion);
  config.pooling = read_choice<Pooling>(reader, "pooling", kPoolings, pooling_name, config.pooling);
  if (reader.has("projection") || !config.projection) {
    config.projection = reader.find<std::int64_t>("projection");
  } else {
    config.projection = reader.get<std::int64_t>("projection", *config.projection);
  }
  reader.read("num_labels", config.num_labels);
  reader.read("class_weights", config.class_weights);
  reader.read("freeze", config.freeze);
  refuse(find_problem(config), reader);
  return config;
}

Problem find_problem(const TrimodalConfig& config) {
  if (config.shared_towers) {
    if (auto problem = find_difference(config.primary, config.secondary)) return problem;
  }
  if (config.tabular) {
    if (auto problem = check_width("tabular.input_dim", config.tabular->input_dim)) return problem;
    if (auto problem = check_width("tabular.hidden_dim", config.tabular->hidden_dim)) return problem;
  }
  if (auto problem = check_width("fusion.hidden_size", config.fusion.hidden_size)) return problem;
  if (auto problem = check_probability("fusion.dropout", config.fusion.dropout)) return problem;
  if (config.fusion.activation != ActivationFunction::relu) {
    return ConfigProblem{"fusion.activation",
                         fmt::format("{} is not supported", activation_name(config.fusion.activation)), "use relu"};
  }
  if (config.projection) {
    if (auto problem = check_width("projection", *config.projection)) return problem;
  }
  if (auto problem = check_size("num_labels", config.num_labels, 2, kMaxWidth)) return problem;
  const auto num_weights = static_cast<std::int64_t>(config.class_weights.size());
  if (num_weights != 0 && num_weights != config.num_labels) {
    return ConfigProblem{"class_weights", fmt::format("{} weights for num_labels {}", num_weights, config.num_labels),
                         fmt::format("give {} weights, or none", config.num_labels)};
  }
  for (const double weight : config.class_weights) {
    if (auto problem = check_positive("class_weights", weight)) return problem;
  }
  return std::nullopt;
}

namespace {

Tower tower_facts(const std::string& name, const BertConfig& config, const std::string& owner) {
  return {.name = name,
          .prefix = owner + ".",
          .model = BertModelConfig{.encoder = config, .freeze = {}},
          .vocab_size = config.vocab_size,
          .pad_token_id = config.pad_token_id,
          .counts_tokens = config.counts_tokens(),
          .path = config.path};
}

ModelFacts trimodal_facts(const ModelConfig& model) {
  const auto& config = get<TrimodalConfig>(model);
  ModelFacts facts;
  facts.vocab_size = config.primary.vocab_size;
  facts.max_sequence = config.primary.max_sequence();
  facts.freeze = config.freeze;
  facts.field_limits = {{"secondary_ids", config.secondary.vocab_size}};
  Classifier classifier;
  classifier.towers = {tower_facts("primary", config.primary, "primary"),
                       tower_facts("secondary", config.secondary, config.shared_towers ? "primary" : "secondary")};
  if (config.tabular) classifier.columns = config.tabular->input_dim;
  classifier.num_labels = config.num_labels;
  classifier.class_weights = config.class_weights;
  const auto add_source = [&](const BertConfig& tower, const char* prefix) {
    if (tower.path) facts.sources.push_back({*tower.path, &bert_names(tower), prefix});
  };
  add_source(config.primary, "primary.");
  if (!config.shared_towers) add_source(config.secondary, "secondary.");
  facts.classifier = std::move(classifier);
  return facts;
}

}  // namespace

const Family& trimodal_family() {
  static const Family kFamily = {
      .name = "trimodal",
      .task = Task::classification,
      .read = [](JsonReader& section, const ModelConfig*) -> ModelConfig { return read_trimodal(section); },
      .facts = trimodal_facts,
      .shorten =
          [](ModelConfig& config, std::int64_t layers) {
            keep_layers(get<TrimodalConfig>(config).primary, layers);
            keep_layers(get<TrimodalConfig>(config).secondary, layers);
          },
      .set_class_weights =
          [](ModelConfig& config, std::vector<double> weights) {
            get<TrimodalConfig>(config).class_weights = std::move(weights);
          },
      .spec = [](const ModelConfig& config,
                 const WorkSize& work) { return trimodal_spec(get<TrimodalConfig>(config), work); },
      .presets = trimodal_presets,
      .without_folder = {.path_message = "a trimodal model has no folder of its own",
                         .path_remedy = "set primary.path and secondary.path",
                         .export_remedy = "write one of its encoders with --tower primary or --tower secondary"},
      .tensor_name = trimodal_tensor_name};
  return kFamily;
}

}  // namespace orthant
