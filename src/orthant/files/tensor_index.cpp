#include "orthant/files/tensor_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "orthant/base/json_reader.h"
#include "orthant/base/printable.h"
#include "orthant/files/safetensors_header.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

bool lies_inside(const std::string& name) {
  const std::filesystem::path path(name);
  if (name.empty() || name.find('\0') != std::string::npos || path.is_absolute() || !path.has_filename()) return false;
  if (printable(name) != name) return false;  // it would break lines of what is said about it
  return std::none_of(path.begin(), path.end(), [](const auto& step) { return step == ".." || step == "."; });
}

// Memory follows the text: an index is names, of which each takes more bytes as text than as a node.
JsonDocument load_index(const std::filesystem::path& path) {
  constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;
  constexpr std::int64_t kLeastTree = std::int64_t{4} << 20;
  const std::string text = read_text_file(path, kMaxBytes);
  return JsonDocument::parse(text, {.source = path.string(),
                                    .errors = JsonErrorKind::kData,
                                    .max_bytes = kMaxBytes,
                                    .max_tree_bytes = kLeastTree + 3 * static_cast<std::int64_t>(text.size())});
}

}  // namespace

bool is_pickle_name(std::string_view name) {
  constexpr std::array<std::string_view, 5> kEndings = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};
  return std::any_of(kEndings.begin(), kEndings.end(), [&](std::string_view end) { return name.ends_with(end); });
}

std::vector<std::string> TensorIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : files_by_tensor) names.insert(file);
  return {names.begin(), names.end()};
}

TensorIndex read_tensor_index(const std::filesystem::path& path) {
  constexpr std::string_view kMap = "weight_map";
  const JsonDocument document = load_index(path);
  JsonReader reader(document);
  reader.object("metadata");
  const nlohmann::json& map = reader.require_raw(kMap);
  if (!map.is_object() || map.empty()) {
    reader.fail(kMap, "expected an object of tensor names with the file of each",
                "the file is of another form: download it again");
  }
  TensorIndex index;
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string()) {
      reader.fail(
          kMap, fmt::format("tensor {} has {}; expected the name of a file", shown_name(tensor), describe_json(file)));
    }
    const auto& name = file.get_ref<const std::string&>();
    if (!lies_inside(name)) {
      reader.fail(
          kMap, fmt::format("tensor {} is in {}, which is not within the folder", shown_name(tensor), shown_name(name)),
          "name files of the folder itself");
    }
    if (is_pickle_name(name)) {
      reader.fail(kMap, fmt::format("tensor {} is in the pickle file {}", shown_name(tensor), shown_name(name)),
                  std::string(kPickleRemedy));
    }
    index.files_by_tensor.emplace(tensor, name);
  }
  return index;
}

std::string to_json(const TensorIndex& index) {
  const nlohmann::json value = {{"metadata", {{"total_size", index.total_bytes}}},
                                {"weight_map", index.files_by_tensor}};
  return value.dump(2) + "\n";
}

}  // namespace orthant
