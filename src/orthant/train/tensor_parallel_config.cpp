#include "orthant/train/tensor_parallel_config.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "orthant/base/error.h"

namespace orthant {

TensorPolicy read_tensor_parallel(JsonReader& section) {
  TensorPolicy policy;
  policy.sequence_parallel = section.get<bool>("sequence_parallel", policy.sequence_parallel);
  policy.loss_parallel = section.get<bool>("loss_parallel", policy.loss_parallel);
  policy.regather = section.get<bool>("regather", policy.regather);
  if (section.has("expert_tp")) policy.expert_tp = section.require<bool>("expert_tp");
  if (section.has("plan") && !section.require_raw("plan").is_object()) {
    section.fail("plan", fmt::format("found {}", section.require_raw("plan").dump()),
                 R"(use {"mlp": "replicate"}: patterns of parameter names -> column, row, sequence, replicate)");
  }
  JsonReader plan = section.object("plan");
  for (const auto& pattern : plan.keys()) {
    try {
      policy.styles.emplace_back(pattern, parse_tensor_style(plan.require<std::string>(pattern)));
    } catch (const ConfigError& error) {
      section.fail("plan", fmt::format("\"{}\": {}", pattern, error.message()), error.remedy());
    }
  }
  return policy;
}

}  // namespace orthant
