#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"
#include "orthant/ops/rules.h"

namespace orthant {

const OpRule& op_rule(std::string_view name) {
  static constexpr std::array<const OpRule*, 17> kRules = {
      &kActivation, &kAdd,      &kAttention, &kBias,      &kConcat,  &kConvert, &kCrossEntropy, &kDropout, &kEmbedding,
      &kFirstToken, &kHeadLoss, &kHeadNorm,  &kLayerNorm, &kProduct, &kRmsNorm, &kRotary,       &kWaves};
  const auto found = std::ranges::find_if(kRules, [&](const OpRule* rule) { return rule->name == name; });
  if (found == kRules.end()) throw InternalError(fmt::format("no operation is named \"{}\"", name));
  return **found;
}

const std::vector<std::string>& remade_names() {
  static const std::vector<std::string> kNames = {"activation", "add",     "attention", "bias",   "dropout",
                                                  "layer_norm", "product", "rms_norm",  "swiglu", "gelu",
                                                  "gelu_tanh",  "relu",    "silu",      "tanh"};
  return kNames;
}

}  // namespace orthant
