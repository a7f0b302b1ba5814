#include "orthant/models/hugging_face_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/models/family.h"
#include "orthant/models/hugging_face_family.h"

namespace orthant {
namespace {

// "layers.12.mlp.up.weight" is the leaf "weight" of the module "layers.*.mlp.up" of layer 12.
// The same for the expert of a layer.
struct NameParts {
  std::string module;
  std::vector<std::string> numbers;  // of the layer, and of its expert
  std::string leaf;
};

NameParts split_name(std::string_view name) {
  NameParts parts;
  const auto dot = name.rfind('.');
  parts.module = name.substr(0, dot == std::string_view::npos ? 0 : dot);
  parts.leaf = dot == std::string_view::npos ? name : name.substr(dot + 1);
  const auto number_at = [&](std::size_t begin) {
    const auto end = parts.module.find('.', begin);
    if (end == std::string::npos) return false;
    parts.numbers.push_back(parts.module.substr(begin, end - begin));
    parts.module.replace(begin, end - begin, "*");
    return true;
  };
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kExperts = "layers.*.experts.";
  if (!parts.module.starts_with(kLayers) || !number_at(kLayers.size())) return parts;
  if (parts.module.starts_with(kExperts)) number_at(kExperts.size());
  return parts;
}

}  // namespace

const NameTable& tensor_names(const ModelConfig& config) {
  if (const auto* hugging_face = config.family().hugging_face) return hugging_face->names(config);
  throw InternalError("a model of this kind has no names in Hugging Face folders");
}

std::optional<HuggingFaceName> hugging_face_name(const NameTable& table, std::string_view parameter, bool bare) {
  const auto parts = split_name(parameter);
  const auto look_up = [&](std::span<const ModuleRow> rows, std::string_view prefix) -> std::optional<HuggingFaceName> {
    const auto row = std::ranges::find(rows, parts.module, &ModuleRow::ours);
    if (row == rows.end()) return std::nullopt;
    auto name = fmt::format("{}{}.{}", prefix, row->theirs, parts.leaf);
    for (const std::string& number : parts.numbers) {
      if (const auto star = name.find('*'); star != std::string::npos) name.replace(star, 1, number);
    }
    return HuggingFaceName{std::move(name), row->transposed && parts.leaf == "weight", false};
  };
  const auto prefix = bare ? std::string_view() : table.prefix;
  if (auto name = look_up(table.body, prefix)) {
    name->body = true;
    return name;
  }
  if (auto name = look_up(table.pooler, prefix)) return name;
  return look_up(table.head, "");
}

}  // namespace orthant
