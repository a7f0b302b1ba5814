#include "orthant/train/model_folders.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "orthant/base/error.h"
#include "orthant/data/make_vocabulary.h"
#include "orthant/files/path_facts.h"
#include "orthant/launch/scripts.h"

namespace orthant {

namespace fs = std::filesystem;

namespace {

// By its ending, the path of a file rather than the name of a model.
bool is_tokenizer_file(const std::string& name) {
  const auto ending = fs::path(name).extension();
  return ending == ".txt" || ending == ".json" || ending == ".model";
}

}  // namespace

std::optional<std::string> find_model_folder(const std::string& name) {
  if (name.empty()) return std::nullopt;
  if (is_there(name)) return name;
  const auto in_models = fs::path("models") / name;
  if (is_there(in_models)) return in_models.string();
  return std::nullopt;
}

std::string require_tokenizer(const std::string& name, const std::string& key, const std::string& data,
                              const std::vector<std::string>& columns) {
  const bool file = is_tokenizer_file(name);
  const bool made = name.ends_with(".txt");  // of files, make-vocabulary writes no other kind
  const auto out = made ? name : fmt::format("models/{}/vocab.txt", name.empty() ? "own" : name);
  const auto make =
      data.empty() || (file && !made)
          ? std::string()
          : fmt::format(
                "; or make a vocabulary from your data: orthant data make-vocabulary --data {} "
                "--columns {}{} --out {}",
                launch::shell_quote(data), launch::shell_quote(fmt::format("{}", fmt::join(columns, ","))),
                promises_case(name) ? " --cased" : "", launch::shell_quote(out));
  if (name.empty()) {
    throw ConfigError(fmt::format("{} is missing: text needs a tokenizer", key),
                      {.remedy = fmt::format("set {} to a tokenizer.json, a vocab.txt, or the folder of a Hugging Face "
                                             "model{}",
                                             key, make)});
  }
  if (auto found = find_model_folder(name)) return *found;
  if (file) {
    throw DataError(fmt::format("{}: there is no {} and no models/{}", key, name, name),
                    {.remedy = fmt::format("name a file that is there, by its path from this folder{}", make)});
  }
  throw DataError(fmt::format("{}: there is no {} and no models/{}", key, name, name),
                  {.remedy = fmt::format("put its folder (tokenizer.json or vocab.txt; for pretrained weights also "
                                         "config.json and model.safetensors) at models/{}{}",
                                         name, make)});
}

}  // namespace orthant
