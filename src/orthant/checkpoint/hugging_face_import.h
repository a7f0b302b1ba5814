// From a Hugging Face folder to a checkpoint that training continues from: our names and orientation, the folder's
// dtype, step 0, no optimizer state. Its config.json, tokenizer and original files (see original_files.h) come along,
// so that it can be exported again.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/files/tag_key.h"
#include "orthant/graph/dtype.h"

namespace orthant {

struct ImportResult {
  std::string kind;  // "llama"
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;          // of the tensors
  std::vector<std::string> notes;  // what the folder lacks, and what of it has no use here
};

// Refuses a folder `out` that exists; on failure nothing is left. DataError that lists all differences between the
// weights and config.json. With a key the checkpoint is tagged.
ImportResult import_hugging_face(const std::filesystem::path& folder, const std::filesystem::path& out,
                                 std::optional<DType> dtype = std::nullopt,
                                 const std::shared_ptr<const TagKey>& key = {});

}  // namespace orthant
