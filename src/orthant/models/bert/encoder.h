// BERT and RoBERTa encoders: learned positions, post-norm layers, an optional pooler and projection. The configuration
// has Hugging Face's keys and defaults. An encoder is a tower: some units under a prefix of a larger graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/activation.h"
#include "orthant/models/config_problem.h"
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

// What a sequence is reduced to: the first position, through a linear and tanh (pooler) or as it is (cls).
enum class Pooling { pooler, cls };
std::string_view pooling_name(Pooling pooling);

struct BertTower {
  std::string prefix;  // "primary": units primary.embed, primary.layers.N, primary.pooler; empty: embed, layers.N, ...
  BertConfig config;
  Pooling pooling = Pooling::pooler;
  std::optional<std::int64_t> projection = std::nullopt;  // width of a last linear; nothing: none
  std::string borrow_from = {};  // prefix of an earlier tower whose parameters this one uses; empty: it owns its own

  std::int64_t pooled_size() const { return projection.value_or(config.hidden_size); }
  // Names of batch fields and values. A tower without a prefix has Hugging Face's, and a field of token types.
  std::string ids() const { return prefix.empty() ? "input_ids" : prefix + "_ids"; }
  std::string mask() const { return prefix.empty() ? "attention_mask" : prefix + "_mask"; }
  std::string last_hidden() const;
  std::string pooled() const { return prefix.empty() ? "pooler_output" : prefix + ".pooled"; }
};

// Adds batch fields for ids and mask (true: a token, false: padding) and the encoder's values and units; its result is
// value last_hidden() [rows, sequence, hidden]. `work.sequence` is this tower's. ConfigError on problems.
void append_bert_encoder(GraphSpec& spec, const BertTower& tower, const WorkSize& work);

// After the encoder: unit pooler and value pooled() [rows, pooled_size()].
void append_bert_pooler(GraphSpec& spec, const BertTower& tower, const WorkSize& work);

// Both.
void append_bert_tower(GraphSpec& spec, const BertTower& tower, const WorkSize& work);

}  // namespace orthant
