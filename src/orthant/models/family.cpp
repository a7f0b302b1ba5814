#include "orthant/models/family.h"

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/models/head_loss.h"

namespace orthant {

#define ORTHANT_FAMILY(folder) const Family& folder##_family();
#include "orthant/models/families.inc"
#undef ORTHANT_FAMILY

const std::vector<const Family*>& families() {
  static const std::vector<const Family*> kFamilies = {
#define ORTHANT_FAMILY(folder) &folder##_family(),
#include "orthant/models/families.inc"
#undef ORTHANT_FAMILY
  };
  return kFamilies;
}

const Family* find_family(std::string_view name) {
  const auto found = std::ranges::find(families(), name, &Family::name);
  return found == families().end() ? nullptr : *found;
}

const Family& first_family(Task task) {
  const auto found = std::ranges::find(families(), task, &Family::task);
  if (found == families().end()) throw InternalError("no family has this task");
  return **found;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family* family : families()) names.emplace_back(family->name);
  return names;
}

bool is_of_body(const UnitSpec& unit, std::string_view parameter) {
  const auto is_its_head = [&](const Family* family) { return is_head(unit.kind, family->name); };
  const auto found = std::ranges::find_if(families(), is_its_head);
  return found != families().end() && !(*found)->body_in_head.empty() && parameter.starts_with((*found)->body_in_head);
}

ModelFacts facts_of(const ModelConfig& config) {
  return config.family().facts(config);
}

}  // namespace orthant
