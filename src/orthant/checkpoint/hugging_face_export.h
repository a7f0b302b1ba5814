// From a checkpoint to a Hugging Face folder: config.json, model.safetensors or shards, and the tokenizer where there
// is one. A model that began as such a folder has its config.json again, with the keys changed that became others, and
// its original files (see original_files.h). A whole classifier has a folder of our own kind (classifier_folder.h).
// Ranks write the shards in turn; none holds more of the model than a block of one tensor.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/comm/control_group.h"
#include "orthant/files/tag_key.h"
#include "orthant/graph/dtype.h"

namespace orthant {

struct ExportOptions {
  std::optional<DType> dtype = {};  // nothing: as stored
  std::int64_t max_shard_bytes = 5'000'000'000;
  std::string tower = {};                  // primary or secondary of a trimodal model
  std::filesystem::path config_file = {};  // of the model, when the checkpoint does not lie in a run's folder
  std::shared_ptr<const TagKey> key = {};  // that the checkpoint's tags must be of; null: they are not looked at
};

struct ExportResult {
  std::vector<std::string> files;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;                    // of the tensors
  std::vector<std::int64_t> bytes_per_rank;  // of tensors that each rank wrote
  std::vector<std::string> notes;            // what has no place there
};

// Verifies the checkpoint first. Refuses a folder that exists; on failure nothing is left. ConfigError for models that
// Hugging Face does not have, DataError for a damaged checkpoint. Ranks must see the same folders. Collective over
// `ranks`; Local for one rank.
ExportResult export_hugging_face(const std::filesystem::path& checkpoint, const std::filesystem::path& out,
                                 const ExportOptions& options = {}, const ControlGroup& ranks = {});

}  // namespace orthant
