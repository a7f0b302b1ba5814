// Byte pair encoding over characters: Llama 2, Mistral, Gemma and their kind. What has no token becomes the tokens of
// its bytes, or the unknown token.
#pragma once

#include <memory>
#include <string>

#include "orthant/text/merge_list.h"
#include "orthant/text/word_model.h"

namespace orthant {

struct CharacterBpeOptions : WordModelOptions {
  MergeList merges;
  bool ignore_merges = false;  // a word that is a token is that token, whatever merges say
  std::string unknown;         // for characters without a token; empty: such a character is a DataError of encode()
  bool fuse_unknown = false;   // one for a run of them
};

// DataError for merges of tokens that are not there, and whatever Vocabulary refuses.
std::shared_ptr<const Tokenizer::Model> make_character_bpe(const CharacterBpeOptions& options);

}  // namespace orthant
