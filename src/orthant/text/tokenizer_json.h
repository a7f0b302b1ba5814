// Tokenizers from a tokenizer.json, of the kinds WordPiece and byte-level BPE. What a file asks for and we do not do is
// refused by name. Its settings for truncation and padding are not used: EncodeOptions has them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "orthant/text/pre_tokenizer.h"
#include "orthant/text/text_normalizer.h"
#include "orthant/text/tokenizer_model.h"
#include "orthant/text/tokenizer_roles.h"

namespace orthant {

class JsonSection;

// `source` is what errors call the text. DataError.
std::shared_ptr<const Tokenizer::Model> tokenizer_from_json(std::string_view text, const std::string& source,
                                                            const TokenizerRoles& roles = {});

// The parts of such a file, each from the object that holds it; `root` has the key, or null under it.
PostProcessor read_post_processor(const JsonSection& root);
PreTokenizer read_pre_tokenizer(const JsonSection& root);
TextNormalizer read_normalizer(const JsonSection& root);

// A ByteLevel step: words as GPT-2 has them, or all in one.
PreTokenizer::Step byte_level_step(bool prefix_space, bool words);

}  // namespace orthant
