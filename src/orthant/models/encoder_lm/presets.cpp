#include "orthant/models/presets.h"

#include <array>

#include "orthant/models/encoder_lm/config.h"

namespace orthant {
namespace {

struct EncoderLmRow {
  std::string_view name;
  std::int64_t hidden, layers, heads, inner, vocab;
};

constexpr std::array<EncoderLmRow, 2> kEncoderLmRows = {{
    {"encoder-lm", 4096, 8, 16, 4096, 32768},
    {"encoder-lm-tiny", 64, 2, 4, 64, 256},
}};

EncoderLmConfig encoder_lm_of(const EncoderLmRow& row) {
  EncoderLmConfig config;
  config.hidden_size = row.hidden;
  config.num_hidden_layers = row.layers;
  config.num_attention_heads = row.heads;
  config.intermediate_size = row.inner;
  config.vocab_size = row.vocab;
  return config;
}

}  // namespace

std::vector<Preset> encoder_lm_presets() {
  std::vector<Preset> presets;
  for (const auto& row : kEncoderLmRows) presets.push_back({std::string(row.name), encoder_lm_of(row)});
  return presets;
}

EncoderLmConfig encoder_lm_preset(std::string_view name) {
  return get<EncoderLmConfig>(preset_config(encoder_lm_family(), name));
}

}  // namespace orthant
