#include "orthant/models/presets.h"

#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {

std::vector<std::string> preset_names(const Family& family) {
  std::vector<std::string> names;
  for (auto& preset : family.presets()) names.push_back(std::move(preset.name));
  return names;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) {
    for (auto& name : preset_names(*family)) names.push_back(std::move(name));
  }
  return names;
}

const Family* family_of_preset(std::string_view name) {
  const auto has_it = [&](const Family* family) {
    return std::ranges::any_of(family->presets(), [&](const Preset& preset) { return preset.name == name; });
  };
  const auto found = std::ranges::find_if(families(), has_it);
  return found == families().end() ? nullptr : *found;
}

Problem find_preset_problem(const Family& family, std::string_view name) {
  const Family* const found = family_of_preset(name);
  if (found == &family) return std::nullopt;
  const std::string message = found != nullptr ? fmt::format("\"{}\" is a {} preset; a {} preset is expected here",
                                                             name, found->name, family.name)
                                               : fmt::format("unknown preset \"{}\"", name);
  return ConfigProblem{"preset", message, did_you_mean(name, preset_names(family))};
}

ModelConfig preset_config(const Family& family, std::string_view name) {
  refuse(find_preset_problem(family, name), family.name);
  for (auto& preset : family.presets()) {
    if (preset.name == name) return std::move(preset.config);
  }
  throw InternalError(fmt::format("no preset {}", name));
}

}  // namespace orthant
