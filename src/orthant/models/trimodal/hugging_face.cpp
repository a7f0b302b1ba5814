#include <string_view>
#include <utility>

#include "orthant/models/hugging_face_names.h"
#include "orthant/models/trimodal/config.h"

namespace orthant {

std::string trimodal_tensor_name(const ModelConfig& model, const std::string& parameter) {
  const auto& config = get<TrimodalConfig>(model);
  constexpr std::string_view kPrimary = "primary.";
  constexpr std::string_view kSecondary = "secondary.";
  for (const auto& [prefix, tower] : {std::pair(kPrimary, &config.primary), {kSecondary, &config.secondary}}) {
    if (!parameter.starts_with(prefix)) continue;
    const auto name = hugging_face_name(bert_names(*tower), parameter.substr(prefix.size()), /*bare=*/true);
    if (name) return std::string(prefix) + name->tensor;
  }
  return parameter;
}

}  // namespace orthant
