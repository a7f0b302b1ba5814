// GPT-2: a decoder with learned positions, pre-norm layers and a GELU MLP. The configuration takes Hugging Face's keys,
// both the common names and GPT-2's own (n_embd, n_layer, n_head, n_positions, n_inner). Units: embed, layers.N, head,
// loss; parameters are called as in the original: wte, wpe, attn.c_attn, attn.c_proj, mlp.c_fc, mlp.c_proj, ln_1, ln_2,
// ln_f, lm_head. Matrices are [out, in], as everywhere here.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/activation.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/decoder_graph.h"
#include "orthant/models/family.h"
#include "orthant/models/work_size.h"

namespace orthant {

struct Gpt2Config {
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 0;  // 0: 4 x hidden_size
  std::int64_t vocab_size = 50257;
  std::int64_t max_position_embeddings = 1024;
  double layer_norm_epsilon = 1e-5;
  ActivationFunction activation_function = ActivationFunction::gelu_new;
  double resid_pdrop = 0.1;
  double embd_pdrop = 0.1;
  double attn_pdrop = 0.1;
  bool tie_word_embeddings = true;
  double initializer_range = 0.02;  // the matrices that end a residual branch: divided by sqrt(2 x layers)
  std::vector<std::string> freeze;  // patterns of parameter names, see freeze.h
  std::optional<std::string> path;  // where pretrained weights lie

  std::int64_t inner_size() const { return intermediate_size == 0 ? 4 * hidden_size : intermediate_size; }
  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
  std::int64_t max_sequence() const { return max_position_embeddings; }

  friend bool operator==(const Gpt2Config&, const Gpt2Config&) = default;
};

// Over `defaults`; `preset` replaces those. Zeros that stand for another value are replaced by it. A size under both of
// its names must be the same.
Gpt2Config read_gpt2(JsonReader& reader, const Gpt2Config& defaults = {});

Problem find_problem(const Gpt2Config& config);

Gpt2Config gpt2_preset(std::string_view name);  // ConfigError when there is none

// ConfigError when the configuration or the work has a problem. Does not freeze.
GraphSpec gpt2_spec(const Gpt2Config& config, const WorkSize& work, const DecoderUse& use = {});

// What gpt2_family() is made of.
const Family& gpt2_family();
inline const Family& family_of(const Gpt2Config&) {
  return gpt2_family();
}
std::vector<Preset> gpt2_presets();
const HuggingFaceFamily& gpt2_hugging_face();

}  // namespace orthant
