#include "orthant/checkpoint/original_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/checkpoint/pretrained.h"
#include "orthant/checkpoint/weight_reader.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 7> kFilesBesideConfig = {
    "generation_config.json", "LICENSE", "LICENSE.md", "LICENSE.txt", "NOTICE", "NOTICE.txt", "USE_POLICY.md"};

// A link of somebody else's folder must not bring another file of this machine into an export. The library's cache has
// links to its own files: snapshots/REVISION/NAME leads to blobs.
void check_stays(const fs::path& folder, const char* name) {
  const auto found = real_path(folder / name);
  const auto home = real_path(folder);
  const auto inside = [&](const fs::path& place) { return std::ranges::mismatch(place, found).in1 == place.end(); };
  if (inside(home) || inside(home.parent_path().parent_path() / "blobs")) return;
  throw DataError(
      fmt::format("{}: it is a link that leads out of its folder, to {}", (folder / name).string(), found.string()),
      {.remedy = "put the file itself there, or remove the link"});
}

// By their names in `folder`.
template <typename Has>
SavedFiles read_files(const fs::path& folder, const char* config, const Has& has) {
  SavedFiles files;
  const auto most = JsonOptions().max_bytes;
  files[kOriginalConfigFile] = read_text_file(folder / config, most);
  for (const char* name : kFilesBesideConfig) {
    if (!has(name)) continue;
    check_stays(folder, name);
    files[name] = read_file(folder / name, most);
  }
  return files;
}

}  // namespace

SavedFiles original_files(const fs::path& folder) {
  if (!is_checkpoint(folder)) {
    return read_files(folder, "config.json", [&](const char* name) { return is_taken(folder / name); });
  }
  const auto manifest = read_manifest(folder);
  const auto listed = [&](const char* name) {
    return std::ranges::find(manifest.files, name, &ManifestFile::name) != manifest.files.end();
  };
  for (const char* config : {kOriginalConfigFile, "config.json"}) {
    if (listed(config)) return read_files(folder, config, listed);
  }
  return {};
}

SavedFiles original_files(const ModelConfig& model) {
  for (const auto& source : pretrained_sources(model)) {
    if (source.prefix.empty()) return original_files(source.folder);
  }
  return {};
}

}  // namespace orthant
