// What kinds of tokenizer.json share whose words are anything that rules made: CharacterBpe and Unigram. Rules
// normalise and cut the text, each word is encoded once and kept, and characters without a token may become the tokens
// of their bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/byte_tokens.h"
#include "orthant/text/pre_tokenizer.h"
#include "orthant/text/text_normalizer.h"
#include "orthant/text/token_decoder.h"
#include "orthant/text/tokenizer_model.h"
#include "orthant/text/word_cache_pool.h"

namespace orthant {

struct WordModelOptions {
  std::string source;  // what errors call the file
  std::vector<Vocabulary::Entry> tokens;
  bool byte_fallback = false;  // text without a token becomes <0x..> for each of its bytes
  TextNormalizer normalizer;
  PreTokenizer words{{}};
  TokenDecoder decoder;
  TokenizerParts parts;
};

class WordModel : public Tokenizer::Model {
 protected:
  // The kind's constructor ends with start(options.parts, its settings and describe_rules(options)).
  explicit WordModel(const WordModelOptions& options);

  static std::string describe_rules(const WordModelOptions& options);

  virtual void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const = 0;
  // Which parts of what the rules cut are words. All of it, unless the kind knows better.
  virtual bool words_at_marks() const { return false; }

  // Adds the tokens of its bytes; false where there is no byte fallback, or not all of them are in the vocabulary.
  bool add_bytes(std::string_view text, std::vector<std::int32_t>& ids) const;

  std::string_view normalize(std::string_view piece, std::string& buffer) const override;
  void encode_words(std::string_view piece, Place place, std::vector<std::int32_t>& ids) const override;
  bool words_may_be_cut() const override { return false; }
  std::string decode_known(std::span<const std::int32_t> ids) const override;

 private:
  bool byte_fallback_;
  ByteTokens bytes_;
  TextNormalizer normalizer_;
  PreTokenizer words_;
  TokenDecoder decoder_;
  mutable WordCachePool caches_;
};

}  // namespace orthant
