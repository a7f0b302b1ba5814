// A model as the planner knows it: by name or file, everything that `train` builds, and shapes that exist only on paper
// (mixtures of experts).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/models/model_config.h"
#include "orthant/plan/estimate/transformer_shape.h"

namespace orthant {

struct PlanModel {
  std::string name;
  std::optional<ModelConfig> config;      // what build_spec() takes; none: a shape on paper
  std::optional<TransformerShape> shape;  // none: a model that is no single chain of layers

  std::int64_t num_parameters() const;
  std::int64_t longest_sequence() const;  // 0: any
};

std::vector<std::string> plan_model_names();

// A preset's name, a JSON file with a model section (or a whole run configuration, whose model section counts), or the
// folder of a Hugging Face model. Kinds: those of read_model(), `gpt` (sizes of GPT-3 style; a gpt2 with 51,200 words
// and 2,048 positions unless said), and `moe` (keys of llama, num_experts, experts_per_token, expert_intermediate_size,
// shared_intermediate_size). Text with a '/' or ending in ".json" is a path. ConfigError with the nearest name.
PlanModel find_plan_model(const std::string& name_or_path);

// What `train` calls such a kind: `gpt` is its own name for a gpt2 of other sizes.
std::string trained_kind(const std::string& kind);

// What a program has configured itself.
PlanModel plan_model(std::string name, const ModelConfig& config);

// Forward and backward FLOPs of the model for one sequence of that length: products and attention, recompute not
// counted, the input embedding not counted; `causal`: half of attention where the mask leaves half.
double model_flops(const PlanModel& model, std::int64_t sequence, bool causal, ProgramCache* programs = nullptr);

}  // namespace orthant
