// Byte pair encoding over characters: Llama 2, Mistral, Gemma and their kind. What has no token becomes the tokens of
// its bytes, or the unknown token.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "orthant/text/merge_list.h"
#include "orthant/text/pre_tokenizer.h"
#include "orthant/text/text_normalizer.h"
#include "orthant/text/token_decoder.h"
#include "orthant/text/tokenizer_model.h"

namespace orthant {

struct CharacterBpeOptions {
  std::string source;  // what errors call the file
  std::vector<Vocabulary::Entry> tokens;
  MergeList merges;
  bool ignore_merges = false;  // a word that is a token is that token, whatever merges say
  bool byte_fallback = false;  // a character without a token becomes <0x..> for each of its bytes
  std::string unknown;         // for characters without either; empty: such a character is a DataError of encode()
  bool fuse_unknown = false;   // one for a run of them
  TextNormalizer normalizer;
  PreTokenizer words{{}};
  TokenDecoder decoder;
  TokenizerParts parts;
};

// DataError for merges of tokens that are not there, and whatever Vocabulary refuses.
std::shared_ptr<const Tokenizer::Model> make_character_bpe(CharacterBpeOptions options);

}  // namespace orthant
