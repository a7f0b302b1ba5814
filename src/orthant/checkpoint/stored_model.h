// A model on disk: a Hugging Face folder, or one of our checkpoints with the configuration of the run that wrote it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "orthant/models/model_config.h"

namespace orthant {

struct StoredModel {
  std::filesystem::path folder;
  bool checkpoint = false;
  ModelConfig config;  // without paths: the weights are those of the folder
  // Where its tokenizer lies when it has one: the folder, or the run's.
  std::filesystem::path companions;
};

// `path`: the model's folder, or a pointer to a checkpoint. A checkpoint's configuration is `config_file` when given (a
// run's or Hugging Face's config.json), else config.json beside the manifest (an imported model) or in the run's
// folder, two levels up. DataError when there is none.
StoredModel find_stored_model(const std::filesystem::path& path, const std::filesystem::path& config_file = {});

// A config.json, a run's or Hugging Face's. DataError for text that is no JSON.
nlohmann::json read_config_json(const std::filesystem::path& file);

// Whether it is a run's, not Hugging Face's.
bool is_run_config(const nlohmann::json& config);

// Of the section `model` of a run's config.json, which has every value of the model: where its first weights came from.
void drop_model_paths(nlohmann::json& model);

// Where a checkpoint's config.json and tokenizer lie: in the run's folder, or in its own when it was imported.
std::filesystem::path companions_of(const std::filesystem::path& checkpoint);

// Where a model's folder, or a run's, has the tokenizer of a tower; of the whole model for "".
std::filesystem::path tokenizer_folder(const std::filesystem::path& folder, const std::string& tower);

bool holds_tokenizer_files(const std::filesystem::path& folder);

// Copies tokenizer.json, vocab.txt, merges.txt, chat templates and the like into the folder `to`, where `from` has them
// or is one of them; of a file, also the settings beside it. Gives their names there. What `to` has under those names
// is replaced.
std::vector<std::string> copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to);

// A section of a run's configuration, or an empty one.
nlohmann::json run_section(const nlohmann::json& config, const char* name);

// Rows of a microbatch of a run with that configuration. `source` is for errors. DataError.
std::int64_t microbatch_rows(const nlohmann::json& config, const std::string& source);

}  // namespace orthant
