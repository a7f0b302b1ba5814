#include "orthant/models/gpt2/config.h"

#include <fmt/format.h>

#include "orthant/models/hugging_face_names.h"
#include "orthant/models/presets.h"

namespace orthant {
namespace {

// A size that GPT-2's own configurations call by other names. Null counts as absent.
void read_size(JsonReader& reader, const std::vector<std::string_view>& names, std::int64_t& field) {
  std::string_view first;
  std::int64_t value = field;
  for (const auto name : names) {
    if (!reader.has(name)) continue;
    const auto found = reader.find<std::int64_t>(name);
    if (!found) continue;
    if (!first.empty() && *found != value) {
      reader.fail(name, fmt::format("{} {} and {} {} are one size", first, value, name, *found),
                  fmt::format("give one of them, or both the same value"));
    }
    first = name;
    value = *found;
  }
  field = first.empty() && !reader.has(names.front()) ? reader.get<std::int64_t>(names.front(), field) : value;
}

}  // namespace

Gpt2Config read_gpt2(JsonReader& reader, const Gpt2Config& defaults) {
  Gpt2Config config = defaults;
  if (const auto name = reader.find<std::string>("preset")) {
    refuse(find_preset_problem(gpt2_family(), *name), reader);
    config = gpt2_preset(*name);
  }
  // It follows again when hidden_size is overridden.
  if (config.intermediate_size == 4 * config.hidden_size) config.intermediate_size = 0;
  read_size(reader, {"hidden_size", "n_embd"}, config.hidden_size);
  read_size(reader, {"num_hidden_layers", "n_layer"}, config.num_hidden_layers);
  read_size(reader, {"num_attention_heads", "n_head"}, config.num_attention_heads);
  read_size(reader, {"intermediate_size", "n_inner"}, config.intermediate_size);
  read_size(reader, {"vocab_size"}, config.vocab_size);
  read_size(reader, {"max_position_embeddings", "n_positions", "n_ctx"}, config.max_position_embeddings);
  reader.read("layer_norm_epsilon", config.layer_norm_epsilon);
  config.activation_function = read_activation(reader, "activation_function", config.activation_function);
  reader.read("resid_pdrop", config.resid_pdrop);
  reader.read("embd_pdrop", config.embd_pdrop);
  reader.read("attn_pdrop", config.attn_pdrop);
  reader.read("tie_word_embeddings", config.tie_word_embeddings);
  reader.read("initializer_range", config.initializer_range);
  reader.read("freeze", config.freeze);
  if (const auto path = reader.find<std::string>("path")) config.path = path;
  refuse(find_problem(config), reader);
  config.intermediate_size = config.inner_size();
  return config;
}

Problem find_problem(const Gpt2Config& config) {
  if (auto problem = check_size("hidden_size", config.hidden_size, 1, kMaxWidth / 4)) return problem;
  if (auto problem = check_size("num_hidden_layers", config.num_hidden_layers, 1, kMaxLayers)) return problem;
  if (auto problem = check_width("num_attention_heads", config.num_attention_heads)) return problem;
  if (auto problem = check_size("intermediate_size", config.intermediate_size, 0, kMaxWidth)) return problem;
  if (auto problem = check_entries("vocab_size", config.vocab_size)) return problem;
  if (auto problem = check_entries("max_position_embeddings", config.max_position_embeddings)) return problem;
  if (auto problem = check_divides({"num_attention_heads", config.num_attention_heads},
                                   {"hidden_size", config.hidden_size}, Remedy::change_either)) {
    return problem;
  }
  if (auto problem = check_probability("resid_pdrop", config.resid_pdrop)) return problem;
  if (auto problem = check_probability("embd_pdrop", config.embd_pdrop)) return problem;
  if (auto problem = check_probability("attn_pdrop", config.attn_pdrop)) return problem;
  if (auto problem = check_positive("layer_norm_epsilon", config.layer_norm_epsilon)) return problem;
  return check_positive("initializer_range", config.initializer_range);
}

namespace {

ModelFacts gpt2_facts(const ModelConfig& model) {
  const auto& config = get<Gpt2Config>(model);
  ModelFacts facts;
  facts.vocab_size = config.vocab_size;
  facts.max_sequence = config.max_sequence();
  facts.freeze = config.freeze;
  facts.tied_head = config.tie_word_embeddings;
  if (config.path) facts.sources.push_back({*config.path, &tensor_names(model), ""});
  facts.chain = biased_chain(config, config.inner_size());
  facts.chain->positions = config.max_position_embeddings;
  facts.chain->tied = config.tie_word_embeddings;
  facts.chain->dropout = config.resid_pdrop > 0;
  return facts;
}

}  // namespace

const Family& gpt2_family() {
  static const Family kFamily = {
      .name = "gpt2",
      .task = Task::next_token,
      .read = [](JsonReader& section, const ModelConfig* folder) -> ModelConfig {
        return read_gpt2(section, folder != nullptr ? get<Gpt2Config>(*folder) : Gpt2Config());
      },
      .facts = gpt2_facts,
      .shorten = [](ModelConfig& config, std::int64_t layers) { keep_layers(get<Gpt2Config>(config), layers); },
      .spec = [](const ModelConfig& config, const WorkSize& work) { return gpt2_spec(get<Gpt2Config>(config), work); },
      .forward =
          [](const ModelConfig& config, const WorkSize& work, const ForwardOptions& options) {
            return gpt2_spec(get<Gpt2Config>(config), work, {.loss = false, .mask = options.mask});
          },
      .packs = true,
      .body_in_head = "head.ln_f.",
      .presets = gpt2_presets,
      .hugging_face = &gpt2_hugging_face()};
  return kFamily;
}

}  // namespace orthant
