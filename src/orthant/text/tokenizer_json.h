// Tokenizers from a tokenizer.json, of the kinds BPE, Unigram and WordPiece. What a file asks for and we do not do is
// refused by name. Its settings for truncation and padding are not used: EncodeOptions has them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "orthant/text/pre_tokenizer.h"
#include "orthant/text/text_normalizer.h"
#include "orthant/text/token_decoder.h"
#include "orthant/text/tokenizer_model.h"
#include "orthant/text/tokenizer_roles.h"

namespace orthant {

class JsonSection;

// `source` is what errors call the text. DataError.
std::shared_ptr<const Tokenizer::Model> tokenizer_from_json(std::string_view text, const std::string& source,
                                                            const TokenizerRoles& roles = {});

// The parts of such a file, each from the object that holds it; `root` has the key, or null under it.
PostProcessor read_post_processor(const JsonSection& root);
TextNormalizer read_normalizer(const JsonSection& root);
TokenDecoder read_decoder(const JsonSection& root);
struct ReadPreTokenizer {
  PreTokenizer words;
  bool byte_level = false;  // ByteLevel is its last step
};
ReadPreTokenizer read_pre_tokenizer(const JsonSection& root, const TextNormalizer& normalizer);

// {"pattern": {"String": "a"}} or {"pattern": {"Regex": "a+"}}.
std::shared_ptr<const Splitter> read_pattern(const JsonSection& section);
// A text of one character.
std::string read_character(const JsonSection& section, std::string_view key);

// A ByteLevel step: words as GPT-2 has them, or all in one.
PreTokenizer::Step byte_level_step(bool prefix_space, bool words);

}  // namespace orthant
