#include "orthant/train/same_run.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_tree.h"
#include "orthant/data/preprocessing.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/train/file_data.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Of a file that somebody else may have written: its nesting and size are bounded. Null when it is no JSON.
nlohmann::json json_or_null(const fs::path& path) {
  const auto text = read_text_file(path, JsonOptions().max_bytes);
  try {
    return *parse_json(text, {.source = path.string()}).value;
  } catch (const ConfigError&) {
    return {};
  }
}

// Of a configuration that somebody else may have written: an empty object where it has no such object.
nlohmann::json part_of(const nlohmann::json& config, const char* name) {
  const auto found = config.find(name);
  return found != config.end() && found->is_object() ? *found : nlohmann::json::object();
}

// What files hold is compared by their hashes; generated data follows from these keys.
void check_same_generator(const std::string& checkpoint, const std::string& written, const nlohmann::json& theirs,
                          const nlohmann::json& ours) {
  if (read_manifest(checkpoint).step == 0) return;  // nothing was drawn yet that has to go on
  for (const char* key : {"kind", "sequence_length", "secondary_length", "samples"}) {
    const auto before = part_of(theirs, "data").value(key, nlohmann::json());
    const auto now = part_of(ours, "data").value(key, nlohmann::json());
    if (before == now) continue;
    throw DataError(
        fmt::format("{}: other data: data.{} was {} there and is {} now", checkpoint, key, before.dump(), now.dump()),
        {.remedy = fmt::format("set data.{}={}, as in {}", key, before.dump(), written)});
  }
}

// The run that wrote the checkpoint says in its config.json what it trained: two models may have the same shapes.
void check_same_settings(const std::string& checkpoint, const std::string& resolved_config) {
  const auto written = real_path(checkpoint).parent_path().parent_path() / "config.json";
  if (!is_there(written)) return;
  const auto theirs = json_or_null(written);
  const auto ours = nlohmann::json::parse(resolved_config);
  if (!theirs.is_object()) return;
  check_same_generator(checkpoint, written.string(), theirs, ours);
  const auto model = part_of(theirs, "model");
  if (model == ours.at("model")) return;
  const auto frozen = [](const nlohmann::json& settings) {
    return part_of(settings, "model").value("freeze", nlohmann::json::array());
  };
  if (frozen(theirs) != frozen(ours)) {
    throw DataError(fmt::format("{}: another model: model.freeze was {} there and is {} now", checkpoint,
                                frozen(theirs).dump(), frozen(ours).dump()),
                    {.remedy = fmt::format("resume with {}", written.string())});
  }
  const auto flat_theirs = model.flatten();
  const auto flat_ours = ours.at("model").flatten();
  for (const auto& [key, value] : flat_ours.items()) {
    if (!flat_theirs.contains(key) || key == "/path" || key.ends_with("/path")) continue;
    const auto before = flat_theirs.value(key, nlohmann::json());
    if (before == value) continue;
    throw DataError(fmt::format("{}: another model: model{} was {} there and is {} now", checkpoint, key, before.dump(),
                                value.dump()),
                    {.remedy = fmt::format("resume with {}", written.string())});
  }
}

// Where the facts name the file whose hash this key has; empty for other keys.
std::string file_of_hash(const std::string& key) {
  constexpr std::string_view kSources = "/text/sources/";
  if (key == "/table") return "/files/0";
  return key.starts_with(kSources) ? "/files/" + key.substr(kSources.size()) : std::string();
}

// Other texts or rows under the same names would go on in the middle of an order that means nothing for them.
void check_same_data(const std::string& checkpoint, const SavedFiles& files) {
  const auto saved = fs::path(checkpoint) / kDataFile;
  const auto now = files.find(kDataFile);
  if (now == files.end() || !is_there(saved)) return;
  const auto before = json_or_null(saved).flatten();
  const auto found = nlohmann::json::parse(now->second).flatten();
  const auto differs = [&](const std::string& key) { return before.value(key, nlohmann::json()) != found.at(key); };
  const auto refuse = [&](const std::string& what) {
    throw DataError(fmt::format("{}: other data: {}", checkpoint, what),
                    {.remedy = "resume with the files of that run, or start a new run from its weights"});
  };
  for (const auto& [key, value] : found.items()) {
    const auto file = file_of_hash(key);
    if (file.empty() || !differs(key)) continue;
    const auto name = found.value(file, nlohmann::json("a file"));
    const auto theirs = before.value(file, name);
    refuse(fmt::format("{} has other contents than {}", name.get<std::string>(),
                       theirs == name ? std::string("when that run read it") : theirs.dump() + " of that run"));
  }
  for (const auto& [key, value] : found.items()) {
    if (key.starts_with("/files/") || !differs(key)) continue;
    refuse(fmt::format("{} was {} there and is {} now", key, before.value(key, nlohmann::json()).dump(), value.dump()));
  }
}

void check_same_preparation(const std::string& checkpoint, const SavedFiles& files) {
  check_same_data(checkpoint, files);
  const auto saved = fs::path(checkpoint) / kPreprocessingFile;
  const auto now = files.find(kPreprocessingFile);
  if (now == files.end() || !is_there(saved)) return;
  check_same_preprocessing(load_preprocessing(saved), preprocessing_from_json(now->second, "the data"), saved.string());
}

}  // namespace

void compare_with_run(const std::string& checkpoint, const std::string& resolved_config, const SavedFiles& files) {
  check_same_preparation(checkpoint, files);
  check_same_settings(checkpoint, resolved_config);
}

}  // namespace orthant
