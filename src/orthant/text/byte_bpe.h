// Byte-level byte pair encoding: GPT-2, RoBERTa, Llama 3 and their kind. Every byte has a token, so that any text, even
// what is not UTF-8, becomes ids and comes back exactly.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "orthant/text/merge_list.h"
#include "orthant/text/pre_tokenizer.h"
#include "orthant/text/text_normalizer.h"
#include "orthant/text/tokenizer_model.h"

namespace orthant {

// Tokens and merges are spelled in the alphabet of byte_alphabet.h; merges in order of their rank.
struct ByteBpeOptions {
  std::string source;  // what errors call the files
  std::vector<Vocabulary::Entry> tokens;
  MergeList merges;
  bool ignore_merges = false;  // a word that is a token is that token, whatever merges say
  std::string unknown;         // for bytes without a token; empty: such a byte is a DataError of encode()
  bool fuse_unknown = false;   // one for a run of them
  TextNormalizer normalizer;
  PreTokenizer words{{}};
  TokenizerParts parts;
};

// DataError for merges of tokens that are not there, and whatever Vocabulary refuses.
std::shared_ptr<const Tokenizer::Model> make_byte_bpe(ByteBpeOptions options);

}  // namespace orthant
