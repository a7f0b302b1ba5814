#include "orthant/serve/carried_files.h"

#include <fmt/format.h>

#include <span>
#include <utility>

#include "orthant/base/error.h"

namespace orthant {

namespace embedded::serve {

using File = std::pair<std::string_view, std::string_view>;
extern const File* const kFiles;
extern const unsigned long kNumFiles;

}  // namespace embedded::serve

namespace {

std::span<const embedded::serve::File> carried() {
  return {embedded::serve::kFiles, embedded::serve::kNumFiles};
}

}  // namespace

std::string_view carried_file(std::string_view file) {
  for (const auto& [name, text] : carried()) {
    if (name == file) return text;
  }
  throw InternalError(fmt::format("the program carries no file {}", file));
}

std::vector<std::string> chat_template_names() {
  constexpr std::string_view kFolder = "templates/";
  constexpr std::string_view kEnding = ".jinja";
  std::vector<std::string> names;
  for (const auto& [name, text] : carried()) {
    if (!name.starts_with(kFolder)) continue;
    names.emplace_back(name.substr(kFolder.size(), name.size() - kFolder.size() - kEnding.size()));
  }
  return names;
}

}  // namespace orthant
