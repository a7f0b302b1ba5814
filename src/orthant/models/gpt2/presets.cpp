#include "orthant/models/presets.h"
#include "orthant/models/gpt2/config.h"

namespace orthant {
namespace {

Preset gpt2_row(const char* name, std::int64_t hidden, std::int64_t layers, std::int64_t heads, std::int64_t vocab,
                std::int64_t positions) {
  return {name, Gpt2Config{.hidden_size = hidden,
                           .num_hidden_layers = layers,
                           .num_attention_heads = heads,
                           .intermediate_size = 4 * hidden,
                           .vocab_size = vocab,
                           .max_position_embeddings = positions}};
}

}  // namespace

// After GPT-2's own: the sizes of Narayanan 2021 (table 1) and Korthikanti 2022 (table 3), whose vocabulary is padded.
std::vector<Preset> gpt2_presets() {
  return {
      gpt2_row("gpt2", 768, 12, 12, 50257, 1024),          gpt2_row("gpt2-medium", 1024, 24, 16, 50257, 1024),
      gpt2_row("gpt2-large", 1280, 36, 20, 50257, 1024),   gpt2_row("gpt2-xl", 1600, 48, 25, 50257, 1024),
      gpt2_row("gpt2-tiny", 64, 2, 4, 256, 512),           gpt2_row("gpt-1.7b", 2304, 24, 24, 51200, 2048),
      gpt2_row("gpt-3.6b", 3072, 30, 32, 51200, 2048),     gpt2_row("gpt-7.5b", 4096, 36, 32, 51200, 2048),
      gpt2_row("gpt-18.4b", 6144, 40, 48, 51200, 2048),    gpt2_row("gpt-22b", 6144, 48, 64, 51200, 2048),
      gpt2_row("gpt-39.1b", 8192, 48, 64, 51200, 2048),    gpt2_row("gpt-76.1b", 10240, 60, 80, 51200, 2048),
      gpt2_row("gpt-145.6b", 12288, 80, 96, 51200, 2048),  gpt2_row("gpt3-175b", 12288, 96, 96, 51200, 2048),
      gpt2_row("gpt-310.1b", 16384, 96, 128, 51200, 2048), gpt2_row("mt-nlg-530b", 20480, 105, 128, 51200, 2048),
      gpt2_row("gpt-1t", 25600, 128, 160, 51200, 2048),
  };
}

Gpt2Config gpt2_preset(std::string_view name) {
  return get<Gpt2Config>(preset_config(gpt2_family(), name));
}

}  // namespace orthant
