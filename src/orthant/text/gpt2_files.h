// Byte-level BPE from the files of GPT-2 and RoBERTa: vocab.json and merges.txt, with what tokenizer_config.json,
// special_tokens_map.json and added_tokens.json beside them say.
#pragma once

#include <filesystem>
#include <memory>

#include "orthant/text/tokenizer_model.h"

namespace orthant {

// DataError for files that are missing or damaged, or of a tokenizer class that is not one of the two.
std::shared_ptr<const Tokenizer::Model> tokenizer_from_gpt2_files(const std::filesystem::path& folder);

}  // namespace orthant
