// What every kind of tokenizer shares: added tokens cut the text, the kind itself turns what lies between them into
// ids, a post-processor puts special tokens around them. A kind (byte_bpe.h, wordpiece.h, unigram.h, ...) says how text
// is normalised, how words become ids, and how ids become text again.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/added_tokens.h"
#include "orthant/text/post_processor.h"
#include "orthant/text/pre_tokenizer.h"
#include "orthant/text/tokenizer.h"
#include "orthant/text/vocabulary.h"

namespace orthant {

// What a tokenizer has around its words, whatever its kind. Added tokens that the vocabulary knows have the id of the
// vocabulary; the others have ids of their own.
struct TokenizerParts {
  std::vector<AddedToken> added;
  PostProcessor post;
  SpecialTokens special;
  bool add_begin = false;  // special.begin goes before a document, whatever the post-processor does
};

// Immutable after start(); all methods are safe from several threads.
class Tokenizer::Model {
 public:
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;

  bool may_be_cut() const;
  void encode(std::string_view text, const EncodeOptions& options, std::vector<std::int32_t>& ids) const;
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options) const;
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  std::int64_t vocab_size() const;
  std::optional<std::int32_t> id(std::string_view token) const;
  const SpecialTokens& special() const { return special_; }
  const std::vector<std::int32_t>& document_begin() const { return document_begin_; }
  std::uint64_t fingerprint() const { return fingerprint_; }
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const AddedTokens& added() const { return added_; }

  virtual std::string kind() const = 0;

 protected:
  explicit Model(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  // Called once, at the end of the kind's constructor, since it normalises added tokens. `settings` is the text of
  // every option that decides ids besides the vocabulary and the parts, for the fingerprint.
  void start(const TokenizerParts& parts, std::string_view settings);

  // The normalised form: either `piece` itself or a view of `buffer`. Any bytes may come, UTF-8 or not.
  virtual std::string_view normalize(std::string_view piece, std::string& buffer) const = 0;
  // Adds the ids of normalised text that holds no added token. Never called with an empty piece.
  virtual void encode_words(std::string_view piece, Place place, std::vector<std::int32_t>& ids) const = 0;
  // Whether no word lies across a safe cut.
  virtual bool words_may_be_cut() const = 0;
  // The text of ids that all exist; ids of added tokens are among them, their content is added().find(id)->content.
  virtual std::string decode_known(std::span<const std::int32_t> ids) const = 0;

  // The texts of such ids.
  std::vector<std::string> tokens_of(std::span<const std::int32_t> ids) const;

 private:
  std::vector<std::int32_t> encode_text(std::string_view text, bool continues) const;

  Vocabulary vocabulary_;
  AddedTokens added_;
  PostProcessor post_;
  SpecialTokens special_;
  std::vector<std::int32_t> document_begin_;
  std::uint64_t fingerprint_ = 0;
};

}  // namespace orthant
