#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "orthant/models/family.h"
#include "orthant/models/hugging_face.h"
#include "orthant/models/hugging_face_family.h"

namespace orthant {
namespace {

using Json = nlohmann::ordered_json;

// A key, and those that change together with it.
void change(Json& json, const std::string& key, const Json& values,
            const std::vector<std::vector<std::string>>& one_meaning) {
  json[key] = values[key];
  for (const auto& group : one_meaning) {
    if (std::ranges::find(group, key) == group.end()) continue;
    for (const auto& other : group) {
      if (values.contains(other)) {
        json[other] = values[other];
      } else {
        json.erase(other);
      }
    }
  }
}

std::optional<HuggingFaceHead> head_of_class(const std::string& name) {
  constexpr std::array<const char*, 3> kLanguageModels = {"ForCausalLM", "LMHeadModel", "ForMaskedLM"};
  if (std::ranges::any_of(kLanguageModels, [&](const char* ending) { return name.ends_with(ending); })) {
    return HuggingFaceHead::language_model;
  }
  return name.ends_with("Model") ? std::optional(HuggingFaceHead::none) : std::nullopt;
}

std::optional<HuggingFaceHead> head_of(const Json& json) {
  const auto found = json.find("architectures");
  if (found == json.end() || !found->is_array() || found->empty() || !found->front().is_string()) return std::nullopt;
  return head_of_class(found->front());
}

}  // namespace

std::optional<HuggingFaceHead> hugging_face_head(std::string_view text, const std::string& source) {
  parse_hugging_face_config(text, source);
  return head_of(Json::parse(text));
}

std::string rewritten_hugging_face_config(std::string_view original, const std::string& source,
                                          const ModelConfig& config, const ConfigChanges& changes) {
  const auto before = parse_hugging_face_config(original, source);
  const HuggingFaceFamily* const family = config.family().hugging_face;
  auto json = Json::parse(original);
  const auto untouched = json;
  // What is neither asked for nor another value of the model is the same in both.
  const auto head = changes.head.value_or(HuggingFaceHead::none);
  const auto was = Json::parse(hugging_face_config_text(before, head, DType::float32));
  const auto now = Json::parse(hugging_face_config_text(config, head, DType::float32));
  for (const auto& [key, value] : now.items()) {
    if (key != "architectures" && was.value(key, Json()) != value) change(json, key, now, family->one_meaning);
  }
  const bool says_class = json.contains("architectures") && json["architectures"].is_array();
  const bool other_model = was["model_type"] != now["model_type"];
  if (changes.head && says_class && (other_model || head_of(json) != changes.head)) {
    std::string name = now["architectures"][0];
    if (family->class_name != nullptr) name = family->class_name(json["model_type"], std::move(name));
    json["architectures"] = {std::move(name)};
  }
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (changes.dtype && json.contains(key) && json[key].is_string()) json[key] = dtype_name(*changes.dtype);
  }
  return json == untouched ? std::string(original) : json.dump(2) + "\n";
}

}  // namespace orthant
