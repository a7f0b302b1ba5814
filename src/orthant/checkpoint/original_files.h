// What a Hugging Face folder says of its model besides weights and tokenizer: config.json with all its keys,
// generation_config.json, licences. Runs that start from such a folder keep these files in every checkpoint, so that an
// export has them when the folder is gone.
#pragma once

#include <filesystem>

#include "orthant/checkpoint/checkpoint.h"
#include "orthant/models/model_config.h"

namespace orthant {

// What a checkpoint of a run calls the config.json of that folder: the run has one of its own. In an imported
// checkpoint it is config.json.
inline constexpr const char* kOriginalConfigFile = "original_config.json";

// Those of a Hugging Face folder, or those that a checkpoint keeps and its manifest lists, whose hashes
// the caller checks; none when it keeps none. config.json is called kOriginalConfigFile. DataError for what is no
// regular file, leads out of the folder or has more than 16 MiB.
SavedFiles original_files(const std::filesystem::path& folder);

// Those of the folder or checkpoint that the whole model starts from; none without one.
SavedFiles original_files(const ModelConfig& model);

}  // namespace orthant
