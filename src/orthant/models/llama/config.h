// Llama: a decoder with rotary positions, RMS norms, grouped key/value heads and a gated MLP; and families that are a
// Llama but for an option or two. Qwen3 normalises every head of queries and keys before their rotation; in Mistral a
// token sees the last `sliding_window` ones alone. Each has Hugging Face's keys and defaults, and is a kind of model of
// its own; the spec has the units embed, layers.N, head and loss.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/decoder_graph.h"
#include "orthant/models/rope.h"
#include "orthant/models/work_size.h"

namespace orthant {

enum class LlamaFamily { llama, qwen3, mistral };
inline constexpr std::array<LlamaFamily, 3> kLlamaFamilies = {LlamaFamily::llama, LlamaFamily::qwen3,
                                                              LlamaFamily::mistral};

std::string_view llama_family_name(LlamaFamily family);  // "qwen3": its kind, and Hugging Face's model_type
std::optional<LlamaFamily> llama_family_named(std::string_view name);

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
  bool attention_bias = false;  // in the four projections of attention; not Mistral's
  bool mlp_bias = false;        // Llama's alone
  bool tie_word_embeddings = false;
  double initializer_range = 0.02;
  std::vector<std::string> freeze;  // patterns of parameter names, see freeze.h
  std::optional<std::string> path;  // where pretrained weights lie
  double attention_dropout = 0;     // of the probabilities
  std::int64_t sliding_window = 0;  // tokens that a token sees, itself included; 0: all before it. Mistral's alone
  LlamaFamily family = LlamaFamily::llama;

  bool norms_heads() const { return family == LlamaFamily::qwen3; }
  std::int64_t kv_heads() const { return num_key_value_heads == 0 ? num_attention_heads : num_key_value_heads; }
  std::int64_t head_size() const { return head_dim == 0 ? hidden_size / num_attention_heads : head_dim; }
  // Linear and dynamic scaling read texts longer than max_position_embeddings, by their factor.
  std::int64_t max_sequence() const;

  friend bool operator==(const LlamaConfig&, const LlamaConfig&) = default;
};

// A family's defaults, which are Hugging Face's.
LlamaConfig llama_defaults(LlamaFamily family);

// Keys as the fields, over `defaults`; `preset` replaces those. Zeros that stand for another value are replaced by it.
LlamaConfig read_llama(JsonReader& reader, const LlamaConfig& defaults = {});

Problem find_problem(const LlamaConfig& config);

// ConfigError when the configuration or the work has a problem. Does not freeze.
GraphSpec llama_spec(const LlamaConfig& config, const WorkSize& work, const DecoderUse& use = {});

}  // namespace orthant
