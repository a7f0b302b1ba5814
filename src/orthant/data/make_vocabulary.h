// A WordPiece vocabulary from a table's own texts, for users without a pretrained tokenizer. It is chosen by counting,
// not by likelihood: see Note [Counted vocabulary] in piece_vocabulary.h.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// What reads such a vocabulary, as a tokenizer_config.json beside it calls it.
inline constexpr const char* kWordPieceClass = "BertTokenizer";

// Whether the name of a tokenizer promises that case is kept: a made vocabulary lowers it unless told so.
inline bool promises_case(std::string_view name) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return (has("cased") && !has("uncased")) || has("roberta");
}

struct MakeVocabularyOptions {
  std::string path;
  std::vector<std::string> columns;
  std::int64_t size = 8000;
  bool cased = false;
  std::function<void(std::int64_t rows)> progress;
};

struct MadeVocabulary {
  std::vector<std::string> tokens;  // the line number is the id
  std::int64_t rows = 0;
  std::int64_t words = 0;     // in all texts
  std::int64_t distinct = 0;  // different ones
  std::int64_t whole = 0;     // of `words`, those that are one token
};

// Texts are cut into words exactly as the WordPiece tokenizer with the same casing does. Bad rows are left out. A
// function of the file and the options alone. ConfigError without columns, and for a size that does not hold the
// characters.
MadeVocabulary make_vocabulary(const MakeVocabularyOptions& options);

}  // namespace orthant
