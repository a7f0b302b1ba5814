#include "orthant/plan/plan_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {

namespace embedded::plan {

using File = std::pair<std::string_view, std::string_view>;
extern const File* const kFiles;
extern const unsigned long kNumFiles;

}  // namespace embedded::plan

namespace {

std::span<const embedded::plan::File> files() {
  return {embedded::plan::kFiles, embedded::plan::kNumFiles};
}

}  // namespace

std::string_view plan_data(std::string_view file) {
  for (const auto& [name, text] : files()) {
    if (name == file) return text;
  }
  throw InternalError(fmt::format("the library carries no file {}", file));
}

std::vector<std::string> plan_data_names(std::string_view folder, std::string_view ending) {
  std::vector<std::string> names;
  for (const auto& [name, text] : files()) {
    if (!name.starts_with(folder) || !name.ends_with(ending)) continue;
    names.emplace_back(name.substr(folder.size(), name.size() - folder.size() - ending.size()));
  }
  return names;
}

bool is_path_of_json(const std::string& name_or_path) {
  return name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
}

NamedDocument find_plan_document(std::string_view what, std::string_view folder, const std::string& name_or_path) {
  const auto names = plan_data_names(folder, ".json");
  if (std::ranges::find(names, name_or_path) != names.end()) {
    const std::string file = fmt::format("{}{}.json", folder, name_or_path);
    return {name_or_path, JsonDocument::parse(plan_data(file), {.source = file})};
  }
  if (is_path_of_json(name_or_path)) {
    return {std::filesystem::path(name_or_path).stem().string(), JsonDocument::load(name_or_path)};
  }
  throw ConfigError(
      fmt::format("unknown {} \"{}\"", what, name_or_path),
      {.remedy = did_you_mean(name_or_path, names) + "; a file of one's own is named by a path that ends in .json"});
}

}  // namespace orthant
