// Any model's configuration: the `model` section of a training configuration, and the spec it stands for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/graph/spec.h"
#include "orthant/specs/freeze.h"
#include "orthant/specs/llama.h"
#include "orthant/specs/trimodal.h"
#include "orthant/specs/work_size.h"

namespace orthant {

using ModelConfig = std::variant<LlamaConfig, TrimodalConfig>;

// `kind` is llama or trimodal; it may be left out when `preset` says it. The caller's finish() refuses unknown keys.
ModelConfig read_model(JsonReader model);

// The spec with the configuration's frozen parameters, checked.
GraphSpec build_spec(const ModelConfig& config, const WorkSize& work);

std::string_view model_kind(const ModelConfig& config);  // "llama"
std::int64_t vocab_size(const ModelConfig& config);      // of the primary tower
std::int64_t max_sequence(const ModelConfig& config);    // likewise
const std::vector<std::string>& frozen_patterns(const ModelConfig& config);

}  // namespace orthant
