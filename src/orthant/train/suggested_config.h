// The configuration that `orthant init` writes: a model and data that a user names are looked at, and every value of
// the run is chosen for what they are to be used for. Nothing is asked and nothing is written here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace orthant {

// Empty where nothing was said.
struct SuggestOptions {
  std::string model;        // a folder or preset
  std::string data;         // a file or folder
  std::string use;          // finetune, pretrain, classify
  std::string tokenizer;    // a file or folder
  std::string label;        // column of a table
  std::string text_column;  // of a table that is read as documents
  std::string separator;    // of documents in text files
  bool card = false;        // the run will find a GPU
};

struct SuggestedConfig {
  std::string use;
  nlohmann::ordered_json config;                           // with a `_comment` in every section
  std::vector<std::pair<std::string, std::string>> found;  // what each choice rests on: ("data", "24 KiB of text")
};

// ConfigError for options that do not go together, DataError for a model or data that cannot be used. What it gives is
// a configuration that read_run_config() accepts.
SuggestedConfig suggest_config(const SuggestOptions& options);

}  // namespace orthant
