// BERT and RoBERTa encoders: learned positions, post-norm layers, an optional pooler. The configuration has Hugging
// Face's keys and defaults. The model kind `bert` is one encoder. For training it has a masked-language-model head
// (dense, activation, norm, the word embedding again, bias) and the loss; its forward pass alone has a pooler instead.
// Units: embed, layers.N, then head and loss, or pooler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/activation.h"
#include "orthant/models/config_problem.h"
#include "orthant/models/family.h"
#include "orthant/models/work_size.h"

namespace orthant {

struct BertConfig {
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t vocab_size = 30522;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  double layer_norm_eps = 1e-12;
  ActivationFunction hidden_act = ActivationFunction::gelu;
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::int64_t pad_token_id = 0;
  double initializer_range = 0.02;
  std::int64_t position_offset = 0;  // row of the first position in the table: pad_token_id + 1 for RoBERTa
  std::optional<std::string> path;   // where pretrained weights lie

  std::int64_t head_size() const { return hidden_size / num_attention_heads; }
  bool counts_tokens() const { return position_offset > 0; }  // RoBERTa's positions: of tokens that are not padding
  std::int64_t max_sequence() const { return max_position_embeddings - position_offset; }

  friend bool operator==(const BertConfig&, const BertConfig&) = default;
};

// Keys as the fields, over `defaults`; `preset` replaces those.
BertConfig read_bert(JsonReader& reader, const BertConfig& defaults = {});

Problem find_problem(const BertConfig& config);

struct BertModelConfig {
  BertConfig encoder;
  std::vector<std::string> freeze;  // patterns of parameter names, see freeze.h

  // RoBERTa's head has the exact GELU whatever its layers have.
  ActivationFunction head_activation() const {
    return encoder.counts_tokens() ? ActivationFunction::gelu : encoder.hidden_act;
  }

  friend bool operator==(const BertModelConfig&, const BertModelConfig&) = default;
};

// The encoder's keys, not in an object of their own. Over `defaults`; `preset` replaces those.
BertModelConfig read_bert_model(JsonReader& reader, const BertModelConfig& defaults = {});

BertConfig bert_preset(std::string_view name);  // ConfigError when there is none

// Masked language modelling: batch fields input_ids, attention_mask (boolean, true: a token), token_type_ids and
// labels, all [rows, sequence]; targets of kIgnoredLabel count nothing. ConfigError on problems. Does not freeze.
GraphSpec bert_model_spec(const BertModelConfig& config, const WorkSize& work);

// The encoder and, when `pooler`, the pooled first position: values last_hidden_state and pooler_output, no loss.
GraphSpec bert_forward_spec(const BertModelConfig& config, const WorkSize& work, bool pooler);

// What bert_family() is made of.
const Family& bert_family();
inline const Family& family_of(const BertModelConfig&) {
  return bert_family();
}
std::vector<Preset> bert_presets();
const HuggingFaceFamily& bert_hugging_face();
const NameTable& bert_names(const BertConfig& config);

}  // namespace orthant
