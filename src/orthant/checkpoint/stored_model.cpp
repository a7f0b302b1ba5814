#include "orthant/checkpoint/stored_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "orthant/base/error.h"
#include "orthant/base/json_document.h"
#include "orthant/base/json_reader.h"
#include "orthant/checkpoint/checkpoint.h"
#include "orthant/checkpoint/pointers.h"
#include "orthant/checkpoint/weight_reader.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"
#include "orthant/models/hugging_face.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 13> kTokenizerFiles = {"tokenizer.json",
                                                         "tokenizer_config.json",
                                                         "special_tokens_map.json",
                                                         "added_tokens.json",
                                                         "chat_template.jinja",
                                                         "chat_template.json",
                                                         "vocab.txt",
                                                         "vocab.json",
                                                         "merges.txt",
                                                         "tokenizer.model",
                                                         "spiece.model",
                                                         "spm.model",
                                                         "sentencepiece.bpe.model"};

// What Tokenizer::load() reads beside a file: whether it is cased, and which tokens have a role.
constexpr std::array<const char*, 2> kReadBeside = {"tokenizer_config.json", "special_tokens_map.json"};

// One of the first two stands for all of them.
constexpr std::array<const char*, 3> kReadTogether = {"vocab.json", "merges.txt", "added_tokens.json"};

// A run wrote every value of its model down; the folder that its weights came from may be gone.
ModelConfig model_of_run(nlohmann::json config, const std::string& source) {
  drop_model_paths(config.at("model"));
  JsonReader root(JsonDocument::parse(config.dump(), {.source = source, .errors = JsonErrorKind::kData}));
  return read_model(root.require_object("model"));
}

ModelConfig model_of_file(const fs::path& file) {
  auto config = read_config_json(file);
  return is_run_config(config) ? model_of_run(std::move(config), file.string()) : read_hugging_face_config_file(file);
}

fs::path run_of(const fs::path& checkpoint) {
  return real_path(checkpoint).parent_path().parent_path();
}

StoredModel stored_checkpoint(const fs::path& folder, const fs::path& config_file) {
  if (!config_file.empty()) return {folder, /*checkpoint=*/true, model_of_file(config_file), folder};
  const auto companions = companions_of(folder);
  if (!is_there(companions / "config.json")) {
    throw DataError(fmt::format("{}: no config.json says which model this is: neither in the checkpoint nor in {}",
                                folder.string(), run_of(folder).string()),
                    {.remedy = "give the run's config.json with --config"});
  }
  return {folder, /*checkpoint=*/true, model_of_file(companions / "config.json"), companions};
}

}  // namespace

nlohmann::json read_config_json(const fs::path& file) {
  return *parse_json(read_text_file(file, JsonOptions().max_bytes),
                     {.source = file.string(), .errors = JsonErrorKind::kData})
              .value;
}

bool is_run_config(const nlohmann::json& config) {
  return config.is_object() && config.contains("model") && config["model"].is_object();
}

void drop_model_paths(nlohmann::json& model) {
  model.erase("path");
  for (const char* tower : {"primary", "secondary"}) {
    if (model.contains(tower) && model[tower].is_object()) model[tower].erase("path");
  }
}

StoredModel find_stored_model(const fs::path& path, const fs::path& config_file) {
  const fs::path folder = pointed_checkpoint(path.string());
  if (is_checkpoint(folder)) return stored_checkpoint(folder, config_file);
  const auto inside = list_checkpoints((folder / "checkpoints").string());
  if (!inside.empty()) {
    throw DataError(fmt::format("{}: the folder of a run, not of a model", folder.string()),
                    {.remedy = fmt::format("use {}", inside.front().path)});
  }
  if (!config_file.empty()) return {folder, false, model_of_file(config_file), folder};
  return {folder, false, read_hugging_face_config(folder), folder};
}

fs::path companions_of(const fs::path& checkpoint) {
  const bool of_run = !is_there(checkpoint / "config.json") && is_there(run_of(checkpoint) / "config.json");
  return of_run ? run_of(checkpoint) : checkpoint;
}

fs::path tokenizer_folder(const fs::path& folder, const std::string& tower) {
  return tower.empty() ? folder : folder / "tokenizers" / tower;
}

bool holds_tokenizer_files(const fs::path& folder) {
  return std::ranges::any_of(kTokenizerFiles, [&](const char* name) { return is_there(folder / name); });
}

std::vector<std::string> copy_tokenizer_files(const fs::path& from, const fs::path& to) {
  std::vector<std::string> copied;
  std::error_code error;
  const auto copy = [&](const fs::path& source, const char* name) {
    if (!orthant::is_regular_file(source)) return;
    copied.emplace_back(name);
    if (fs::equivalent(source, to / name, error)) return;
    write_file_atomically(to / name, read_file(source));  // replaces a link of that name, and does not follow it
  };
  if (orthant::is_regular_file(from)) {
    const auto ending = from.extension();
    if (from.filename() == "vocab.json" || from.filename() == "merges.txt") {
      for (const char* name : kReadTogether) copy(from.parent_path() / name, name);
    } else {
      copy(from, ending == ".json" ? "tokenizer.json" : ending == ".model" ? "tokenizer.model" : "vocab.txt");
    }
    for (const char* name : kReadBeside) copy(from.parent_path() / name, name);
    return copied;
  }
  for (const char* name : kTokenizerFiles) copy(from / name, name);
  return copied;
}

nlohmann::json run_section(const nlohmann::json& config, const char* name) {
  const auto found = config.find(name);
  return found != config.end() && found->is_object() ? *found : nlohmann::json::object();
}

std::int64_t microbatch_rows(const nlohmann::json& config, const std::string& source) {
  auto sections = nlohmann::json::object();
  for (const char* name : {"mesh", "parallel", "train"}) {
    sections[name] = run_section(config, name);
  }
  JsonReader root(JsonDocument::parse(sections.dump(), {.source = source, .errors = JsonErrorKind::kData}));
  const auto count = [&](const char* place, const char* key) {
    return std::max<std::int64_t>(root.object(place).get<std::int64_t>(key, 1), 1);
  };
  const auto rows = count("train", "global_batch_size") / count("mesh", "dp") / count("mesh", "fsdp");
  return std::max<std::int64_t>(rows / count("parallel", "microbatches"), 1);
}

}  // namespace orthant
