#include "orthant/models/presets.h"

#include <array>

#include "orthant/models/gpt2/config.h"

namespace orthant {
namespace {

struct Gpt2Row {
  std::string_view name;
  std::int64_t hidden, layers, heads, vocab, positions;
};

// After GPT-2's own: the sizes of Narayanan 2021 (table 1) and Korthikanti 2022 (table 3), whose vocabulary is padded.
constexpr std::array<Gpt2Row, 17> kGpt2Rows = {{
    {"gpt2", 768, 12, 12, 50257, 1024},
    {"gpt2-medium", 1024, 24, 16, 50257, 1024},
    {"gpt2-large", 1280, 36, 20, 50257, 1024},
    {"gpt2-xl", 1600, 48, 25, 50257, 1024},
    {"gpt2-tiny", 64, 2, 4, 256, 512},
    {"gpt-1.7b", 2304, 24, 24, 51200, 2048},
    {"gpt-3.6b", 3072, 30, 32, 51200, 2048},
    {"gpt-7.5b", 4096, 36, 32, 51200, 2048},
    {"gpt-18.4b", 6144, 40, 48, 51200, 2048},
    {"gpt-22b", 6144, 48, 64, 51200, 2048},
    {"gpt-39.1b", 8192, 48, 64, 51200, 2048},
    {"gpt-76.1b", 10240, 60, 80, 51200, 2048},
    {"gpt-145.6b", 12288, 80, 96, 51200, 2048},
    {"gpt3-175b", 12288, 96, 96, 51200, 2048},
    {"gpt-310.1b", 16384, 96, 128, 51200, 2048},
    {"mt-nlg-530b", 20480, 105, 128, 51200, 2048},
    {"gpt-1t", 25600, 128, 160, 51200, 2048},
}};

Gpt2Config gpt2_of(const Gpt2Row& row) {
  Gpt2Config config;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.intermediate_size = 4 * row.hidden;
  config.vocab_size = row.vocab;
  config.max_position_embeddings = row.positions;
  return config;
}

}  // namespace

std::vector<Preset> gpt2_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kGpt2Rows) presets.push_back({std::string(row.name), gpt2_of(row)});
  return presets;
}

Gpt2Config gpt2_preset(std::string_view name) {
  return get<Gpt2Config>(preset_config(gpt2_family(), name));
}

}  // namespace orthant
