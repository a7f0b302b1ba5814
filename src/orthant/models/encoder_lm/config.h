// A language model from encoder layers under a causal mask: scaled word embeddings plus fixed sine positions, post-norm
// layers with ReLU, a linear decoder with bias. It is the 8-layer model that pipeline tutorials train. Units: embed,
// layers.N, head, loss.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/decoder_graph.h"
#include "orthant/models/family.h"
#include "orthant/models/work_size.h"

namespace orthant {

struct EncoderLmConfig {
  std::int64_t hidden_size = 4096;
  std::int64_t num_hidden_layers = 8;
  std::int64_t num_attention_heads = 16;
  std::int64_t intermediate_size = 4096;
  std::int64_t vocab_size = 32768;
  std::int64_t max_position_embeddings = 5000;
  double layer_norm_eps = 1e-5;
  double dropout = 0.2;             // everywhere: after the embedding, in attention, in the MLP, before residual sums
  double initializer_range = 0.1;   // bound of the uniform draw of embedding and decoder; layers as torch draws them
  std::vector<std::string> freeze;  // patterns of parameter names, see freeze.h

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
  std::int64_t max_sequence() const { return max_position_embeddings; }

  friend bool operator==(const EncoderLmConfig&, const EncoderLmConfig&) = default;
};

// Keys as the fields, over `defaults`; `preset` replaces those.
EncoderLmConfig read_encoder_lm(JsonReader& reader, const EncoderLmConfig& defaults = {});

Problem find_problem(const EncoderLmConfig& config);

EncoderLmConfig encoder_lm_preset(std::string_view name);  // ConfigError when there is none

// ConfigError when the configuration or the work has a problem. Does not freeze.
GraphSpec encoder_lm_spec(const EncoderLmConfig& config, const WorkSize& work, const DecoderUse& use = {});

// What encoder_lm_family() is made of.
const Family& encoder_lm_family();
inline const Family& family_of(const EncoderLmConfig&) {
  return encoder_lm_family();
}
std::vector<Preset> encoder_lm_presets();

}  // namespace orthant
