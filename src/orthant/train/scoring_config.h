// Which model scores rows, and by which configuration: what a run wrote down of itself, with the file to score in the
// place of its data and without what only training reads. Looks at folders and configurations alone; no weights are
// read here. Local.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "orthant/mesh/mesh.h"
#include "orthant/train/run_config.h"

namespace orthant {

struct ScoredModel {
  std::filesystem::path folder;               // as it was named
  std::filesystem::path run = {};             // whose tokenizers and settings count; empty: a model's own folder
  std::vector<std::string> checkpoints = {};  // to read weights from, the best first; none: the folder has them
  bool chooses = false;                       // of several checkpoints the first whole one; else the one that was named
  nlohmann::json config = {};                 // sections `model`, `data`, ... as the run has them
};

// A checkpoint's folder or a pointer to it (checkpoints/latest, checkpoints/best), the folder of a run (its newest
// checkpoint), of a language model as Hugging Face writes it, with its tokenizer, or of an exported trimodal model.
// DataError for anything else.
ScoredModel find_scored_model(const std::filesystem::path& path);

// The folder of a run, and one of its checkpoints, or a pointer to it, where `checkpoint` is not empty; or the folder
// of an exported trimodal model. DataError.
ScoredModel find_scored_run(const std::filesystem::path& run, const std::string& checkpoint);

struct ScoringSettings {
  std::string data;  // the file to score; empty: the part that the run held out of its own data
  Mesh mesh;
  bool by_document = false;                   // of text: a call has one row, whose loss is told alone
  std::optional<std::string> separator = {};  // of documents; else the run's
  std::optional<std::string> text_column = {};
  std::optional<std::int64_t> sequence_length = {};  // of a language model
  std::optional<std::string> bad_rows = {};          // of a table: stop or skip; else the run's
  std::string key_file = {};                         // else the run's
};

// The configuration that scores: model without paths and every parameter frozen, data, precision, seed and checkpoint
// settings of the run, one microbatch of `rows`; a mesh of its own. ConfigError for a file with a run on generated
// data, and without a file for a run that held nothing out.
nlohmann::json scoring_config(const ScoredModel& model, const ScoringSettings& settings);

// Read, for a trainer that evaluates alone. ConfigError where the mesh does not fit the model.
RunConfig read_scoring_config(const ScoredModel& model, const nlohmann::json& config);

}  // namespace orthant
