#include "orthant/models/presets.h"
#include "orthant/models/encoder_lm/config.h"

namespace orthant {

std::vector<Preset> encoder_lm_presets() {
  return {{"encoder-lm", EncoderLmConfig{}},
          {"encoder-lm-tiny", EncoderLmConfig{.hidden_size = 64,
                                              .num_hidden_layers = 2,
                                              .num_attention_heads = 4,
                                              .intermediate_size = 64,
                                              .vocab_size = 256}}};
}

EncoderLmConfig encoder_lm_preset(std::string_view name) {
  return get<EncoderLmConfig>(preset_config(encoder_lm_family(), name));
}

}  // namespace orthant
