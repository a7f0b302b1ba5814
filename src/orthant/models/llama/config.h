// Llama: a decoder with rotary positions, RMS norms, grouped key/value heads and a gated MLP. Families that are a Llama
// but for an option or two have the same configuration and a variant of their own (llama/variant.h); each is a kind of
// model. Keys and defaults are Hugging Face's; the spec has the units embed, layers.N, head and loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/decoder_graph.h"
#include "orthant/models/family.h"
#include "orthant/models/rope.h"
#include "orthant/models/work_size.h"

namespace orthant {

struct LlamaVariant;
extern const LlamaVariant kLlama;

// Layers whose MLP is a mixture of experts.
struct ExpertLayers {
  std::int64_t count = 0;  // of experts; 0: every MLP is dense
  std::int64_t per_token = 2;
  std::int64_t inner = 0;                       // of each; 0: intermediate_size
  bool normalised = true;                       // the scores of the experts of a token are divided by their sum
  std::int64_t step = 1;                        // every step-th layer has experts, the first being layer step - 1
  std::vector<std::int64_t> dense_layers = {};  // these have none
  std::int64_t shared_inner = 0;                // of an expert that every token passes, with a gate; 0: none
  double balance_loss = 0.001;                  // a layer's share of it in the loss; see ops/experts/router_loss.h
  double z_loss = 0;
  // Times an equal share of a row's slots: what an expert takes of a row at most, in training and evaluations; 0: all.
  double capacity_factor = 0;
  double bias_rate = 0;  // by which a step moves what is added to scores to choose experts; 0: nothing is added
  // How DeepSeek-V3 chooses: see ops::Experts.
  bool sigmoid = false;
  std::int64_t groups = 1;
  std::int64_t groups_taken = 1;
  double scaling = 1;

  bool has(std::int64_t layer) const;
  // Slots of a row of so many tokens that an expert has room for; 0: of all.
  std::int64_t capacity(std::int64_t sequence) const;
  // What families of Hugging Face have no keys for is left alone.
  bool chooses_by_softmax() const {
    return !sigmoid && groups == 1 && scaling == 1 && bias_rate == 0 && capacity_factor == 0;
  }
  friend bool operator==(const ExpertLayers&, const ExpertLayers&) = default;
};

struct LlamaConfig {
  std::int64_t hidden_size = 4096;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::int64_t num_key_value_heads = 0;  // 0: as num_attention_heads
  std::int64_t head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::int64_t intermediate_size = 11008;
  std::int64_t vocab_size = 32000;
  std::int64_t max_position_embeddings = 2048;
  double rope_theta = 10000;
  double rms_norm_eps = 1e-6;
  RopeScaling rope_scaling;
  bool attention_bias = false;  // in the four projections of attention
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::vector<std::string> freeze;  // patterns of parameter names, see freeze.h
  std::optional<std::string> path;  // where pretrained weights lie
  double attention_dropout = 0;     // of the probabilities
  std::int64_t sliding_window = 0;  // tokens that a token sees, itself included; 0: all before it
  ExpertLayers experts;
  const LlamaVariant* variant = &kLlama;  // which of the families it is

  bool norms_heads() const;  // each head of queries and keys, before their rotation
  bool output_bias() const;  // of attention
  std::int64_t kv_heads() const { return num_key_value_heads == 0 ? num_attention_heads : num_key_value_heads; }
  std::int64_t expert_inner() const { return experts.inner == 0 ? intermediate_size : experts.inner; }
  std::int64_t num_expert_layers() const;
  std::int64_t head_size() const { return head_dim == 0 ? hidden_size / num_attention_heads : head_dim; }
  // Linear and dynamic scaling read texts longer than max_position_embeddings, by their factor.
  std::int64_t max_sequence() const;

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

// Keys as the fields, over `defaults`; `preset` replaces those. Zeros that stand for another value are replaced by it.
LlamaConfig read_llama(JsonReader& reader, const LlamaConfig& defaults = {});

Problem find_problem(const LlamaConfig& config);

LlamaConfig llama_preset(std::string_view name);  // also of its variants; ConfigError when there is none

// ConfigError when the configuration or the work has a problem. Does not freeze.
GraphSpec llama_spec(const LlamaConfig& config, const WorkSize& work, const DecoderUse& use = {});

const Family& llama_family();
const Family& family_of(const LlamaConfig& config);

}  // namespace orthant
