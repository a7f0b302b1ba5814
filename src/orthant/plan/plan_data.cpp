#include "orthant/plan/plan_data.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "orthant/base/error.h"

namespace orthant {

namespace embedded {

using File = std::pair<std::string_view, std::string_view>;
extern const File* const kFiles;
extern const unsigned long kNumFiles;

}  // namespace embedded

namespace {

std::span<const embedded::File> files() {
  return {embedded::kFiles, embedded::kNumFiles};
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

}  // namespace orthant
