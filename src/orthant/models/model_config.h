// Any model's configuration: the `model` section of a training configuration, and the spec it stands for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/models/bert/config.h"
#include "orthant/models/encoder_lm/config.h"
#include "orthant/models/freeze.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/llama/config.h"
#include "orthant/models/trimodal/config.h"
#include "orthant/models/work_size.h"

namespace orthant {

using ModelConfig = std::variant<LlamaConfig, TrimodalConfig, BertModelConfig, Gpt2Config, EncoderLmConfig>;

// `kind` is llama, qwen3, mistral, trimodal, bert, gpt2 or encoder_lm; it may be left out when `preset` says it, or
// `path`, the folder of a Hugging Face model whose config.json then gives the defaults of all keys. The caller's
// finish() refuses unknown keys.
ModelConfig read_model(JsonReader model);

// The spec with the configuration's frozen parameters, checked.
GraphSpec build_spec(const ModelConfig& config, const WorkSize& work);

// The forward pass alone, every parameter frozen: logits, or of bert last_hidden_state and pooler_output. With `mask`
// there is a batch field attention_mask, boolean [rows, sequence], true for tokens; bert always has it. ConfigError for
// a model of another kind.
struct ForwardOptions {
  bool mask = false;
  bool pooler = true;  // bert
};
GraphSpec forward_spec(const ModelConfig& config, const WorkSize& work, const ForwardOptions& options = {});

std::string_view model_kind(const ModelConfig& config);  // "llama"
std::int64_t vocab_size(const ModelConfig& config);      // of the primary tower
std::int64_t max_sequence(const ModelConfig& config);    // likewise
const std::vector<std::string>& frozen_patterns(const ModelConfig& config);

}  // namespace orthant
