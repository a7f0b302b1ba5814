#include "orthant/train/run_tokenizers.h"

#include <optional>
#include <string>
#include <vector>

#include "orthant/checkpoint/pretrained.h"
#include "orthant/checkpoint/stored_model.h"
#include "orthant/data/token_index.h"
#include "orthant/files/beneath.h"
#include "orthant/files/path_facts.h"
#include "orthant/models/model_facts.h"
#include "orthant/train/model_folders.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// What the configuration calls a tokenizer, and the key that another name is written to.
struct NamedTokenizer {
  std::string tower;  // empty: of the whole model
  std::string name;   // empty: none
  std::string* key = nullptr;
};

std::string path_of(const ModelConfig& model) {
  for (const auto& source : pretrained_sources(model)) {
    if (source.prefix.empty()) return source.folder.string();
  }
  return {};
}

// Of text that was turned into tokens before: what its index says.
std::string tokenizer_of_text(const TextSource& text) {
  if (!text.tokenizer.empty() || text.path.empty() || !holds_token_index(text.path.front())) return text.tokenizer;
  return read_token_index(text.path.front()).tokenizer.path;
}

std::vector<NamedTokenizer> named_tokenizers(RunConfig& config) {
  auto& data = config.data;
  if (const auto classifier = facts_of(config.model).classifier) {
    const auto named = [](const Tower& tower, std::string& key) {
      return NamedTokenizer{tower.name, key.empty() ? tower.path.value_or("") : key, &key};
    };
    return {named(classifier->towers.at(0), data.table.primary_tokenizer),
            named(classifier->towers.at(1), data.table.secondary_tokenizer)};
  }
  const auto of_text = data.kind == "text" ? tokenizer_of_text(data.text) : std::string();
  return {{"", of_text.empty() ? path_of(config.model) : of_text, &data.text.tokenizer}};
}

fs::path folder_of(const fs::path& file) {
  return fs::absolute(file).lexically_normal().parent_path();
}

// Where the tokenizer lies: under its name, or else with the checkpoint that the run goes on from. One file of the
// model's folder stands for all of them: they say special tokens and templates.
std::optional<fs::path> find_tokenizer(const NamedTokenizer& tokenizer, const fs::path& model,
                                       const fs::path& resumed) {
  if (const auto found = find_model_folder(tokenizer.name)) {
    const bool of_model =
        !model.empty() && orthant::is_regular_file(*found) && folder_of(*found) == folder_of(model / "");
    return of_model ? model : fs::path(*found);
  }
  if (tokenizer.name.empty() || resumed.empty()) return std::nullopt;
  const auto kept = tokenizer_folder(companions_of(resumed), tokenizer.tower);
  return holds_tokenizer_files(kept) ? std::optional(kept) : std::nullopt;
}

}  // namespace

void keep_tokenizers(const RunConfig& config, const fs::path& run, const fs::path& resumed) {
  auto copy = config;
  for (const auto& tokenizer : named_tokenizers(copy)) {
    const auto found = find_tokenizer(tokenizer, path_of(copy.model), resumed);
    if (!found) continue;
    const auto place = tokenizer_folder(run, tokenizer.tower);
    if (!tokenizer.tower.empty()) {
      make_folder_beneath(run, "tokenizers");
      make_folder_beneath(run / "tokenizers", tokenizer.tower);
    }
    copy_tokenizer_files(*found, place);
  }
}

void use_kept_tokenizers(RunConfig& config, const fs::path& run) {
  for (const auto& tokenizer : named_tokenizers(config)) {
    const auto place = tokenizer_folder(run, tokenizer.tower);
    // A prepared folder of tokens needs no tokenizer, so only what data reads by name is replaced.
    if (tokenizer.name.empty() || find_model_folder(tokenizer.name) || !holds_tokenizer_files(place)) continue;
    if (tokenizer.tower.empty() && tokenizer.key->empty()) continue;
    *tokenizer.key = place.string();
  }
}

void prefer_kept_tokenizers(RunConfig& config, const fs::path& run) {
  for (const auto& tokenizer : named_tokenizers(config)) {
    const auto place = tokenizer_folder(run, tokenizer.tower);
    if (holds_tokenizer_files(place)) *tokenizer.key = place.string();
  }
}

}  // namespace orthant
