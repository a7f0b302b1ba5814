// WordPiece as BERT uses it: text is normalised, cut at white space and punctuation, and each word becomes the longest
// pieces of the vocabulary from left to right, or the unknown token when they do not cover it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "orthant/text/tokenizer_model.h"

namespace orthant {

struct WordPieceOptions {
  std::vector<Vocabulary::Entry> vocabulary;
  std::string source;  // what errors call the vocabulary
  std::string unknown = "[UNK]";
  std::string prefix = "##";    // of pieces that continue a word
  std::int64_t max_word = 100;  // characters; longer words are unknown
  bool lowercase = true;
  std::optional<bool> strip_accents;  // absent: as lowercase
  bool handle_chinese_chars = true;
  bool clean_text = true;
  bool clean_decoded = true;  // decode() puts no blank before . ? ! , and the like
  TokenizerParts parts;
};

// DataError when the vocabulary lacks the unknown token.
std::shared_ptr<const Tokenizer::Model> make_wordpiece(const WordPieceOptions& options);

// A vocab.txt: one token a line, the first has id 0; [PAD], [UNK], [CLS], [SEP] and [MASK] are special where they are
// in it. A tokenizer_config.json beside it says do_lower_case (true without it), strip_accents and
// tokenize_chinese_chars. DataError for lines that are empty, come twice or are not UTF-8.
WordPieceOptions read_wordpiece_vocabulary(const std::filesystem::path& vocab_txt);

}  // namespace orthant
