// Models and settings of published runs, in few words.
#pragma once

#include <fmt/format.h>

#include <iostream>

#include <cstdint>
#include <string>

#include "orthant/models/gpt2/config.h"
#include "orthant/plan/estimate/plan_model.h"
#include "orthant/plan/estimate/plan_settings.h"

namespace orthant {

inline constexpr double kGiB = 1024.0 * 1024 * 1024;

// In the style of GPT-3.
inline PlanModel gpt(std::int64_t layers, std::int64_t hidden, std::int64_t heads, std::int64_t vocab,
                     std::int64_t positions) {
  Gpt2Config config;
  config.num_hidden_layers = layers;
  config.hidden_size = hidden;
  config.num_attention_heads = heads;
  config.intermediate_size = 4 * hidden;
  config.vocab_size = vocab;
  config.max_position_embeddings = positions;
  return plan_model("gpt", config);
}

// `gradients` are summed in float32, flash is on, nothing is recomputed.
inline PlanSettings run_of(const std::string& mesh, std::int64_t micro_batch, std::int64_t microbatches,
                           std::int64_t sequence) {
  PlanSettings settings;
  settings.mesh = Mesh::parse(mesh);
  settings.micro_batch = micro_batch;
  settings.global_batch = micro_batch * microbatches * settings.replicas();
  settings.sequence = sequence;
  return settings;
}

// A line of the table in docs/planner.md. The error, as a fraction.
inline double tell(const std::string& row, double published, double priced, const char* unit) {
  const double error = priced / published - 1;
  std::cout << fmt::format("{}: published {:.5g} {}, priced {:.5g}, {:+.1f}%\n", row, published, unit, priced,
                           100 * error);
  return error;
}

}  // namespace orthant
