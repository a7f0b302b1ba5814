// The model kind `bert`: one BERT or RoBERTa encoder. For training it has a masked-language-model head (dense,
// activation, norm, the word embedding again, bias) and the loss; its forward pass alone has a pooler instead. Units:
// embed, layers.N, then head and loss, or pooler.
#pragma once

#include <string>
#include <vector>

#include "orthant/models/bert/encoder.h"

namespace orthant {

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

// Masked language modelling: batch fields input_ids, attention_mask (boolean, true: a token), token_type_ids and
// labels, all [rows, sequence]; targets of kIgnoredLabel count nothing. ConfigError on problems. Does not freeze.
GraphSpec bert_model_spec(const BertModelConfig& config, const WorkSize& work);

// The encoder and, when `pooler`, the pooled first position: values last_hidden_state and pooler_output, no loss.
GraphSpec bert_forward_spec(const BertModelConfig& config, const WorkSize& work, bool pooler);

}  // namespace orthant
