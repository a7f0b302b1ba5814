// A BERT or RoBERTa encoder as a tower: some units under a prefix of a larger graph.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orthant/graph/spec.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/work_size.h"

namespace orthant {

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
