#include "orthant/models/mistral/config.h"

#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "orthant/models/llama/variant.h"

namespace orthant {
namespace {

constexpr std::array<LlamaRow, 2> kMistralRows = {{
    {"mistral-7b", 4096, 32, 32, 8, 14336, 32000, 32768, 1e4, 0, 0, false, 4096},
    {"mistral-tiny", 64, 2, 4, 2, 192, 256, 512, 1e4, 0, 0, false, 16},
}};

LlamaConfig mistral_defaults() {
  LlamaConfig config;
  config.variant = &kMistral;
  config.num_key_value_heads = 8;
  config.intermediate_size = 14336;
  config.max_position_embeddings = 131072;
  config.sliding_window = 4096;
  return config;
}

}  // namespace

// Null: all tokens before a token are seen.
void read_mistral_keys(JsonReader& reader, LlamaConfig& config) {
  constexpr std::string_view kKey = "sliding_window";
  if (!reader.has(kKey)) return;
  config.sliding_window = reader.find<std::int64_t>(kKey).value_or(0);
  if (is_given(reader, kKey) && config.sliding_window < 1) {
    reader.fail(kKey, fmt::format("is {}: a token sees at least itself", config.sliding_window),
                "a window of 1 token or more, or null for none, can be read");
  }
}

void write_mistral_keys(const LlamaConfig& config, nlohmann::ordered_json& json) {
  json["sliding_window"] =
      config.sliding_window > 0 ? nlohmann::ordered_json(config.sliding_window) : nlohmann::ordered_json();
}

const Family& mistral_family() {
  return llama_family_of<kMistral>();
}

constinit const LlamaVariant kMistral = {.name = "mistral",
                                         .family = mistral_family,
                                         .defaults = mistral_defaults,
                                         .class_name = "Mistral",
                                         .presets = kMistralRows,
                                         .preset_eps = 1e-5,
                                         .attention_bias = {},
                                         .sliding_window = true,
                                         .read_keys = read_mistral_keys,
                                         .write_keys = write_mistral_keys};

}  // namespace orthant
