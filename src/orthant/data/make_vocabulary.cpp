#include "orthant/data/make_vocabulary.h"

#include <unordered_set>

#include "orthant/base/error.h"
#include "orthant/data/open_table.h"
#include "orthant/data/piece_vocabulary.h"
#include "orthant/text/bert_normalizer.h"
#include "orthant/text/bert_words.h"
#include "orthant/text/table_reader.h"

namespace orthant {
namespace {

// Counts words as the WordPiece tokenizer cuts them.
class WordCounter {
 public:
  explicit WordCounter(bool cased)
      : normalizer_({.strip_accents = !cased, .lowercase = !cased}, characters_), words_(characters_) {}

  void add(std::string_view text) {
    words_.for_each(normalizer_.normalize(text, buffer_),
                    [&](std::string_view word, std::int64_t) { ++counts_[std::string(word)]; });
  }

  const WordCounts& counts() const { return counts_; }

 private:
  BertCharacters characters_;
  BertNormalizer normalizer_;
  BertWords words_;
  std::string buffer_;
  WordCounts counts_;
};

}  // namespace

MadeVocabulary make_vocabulary(const MakeVocabularyOptions& options) {
  if (options.columns.empty()) {
    throw ConfigError("no columns are named to make a vocabulary from", {.remedy = "set --columns title,plot"});
  }
  auto reader = open_table(
      options.path, {.columns = options.columns, .bad_rows = BadRows::kSkip, .invalid_utf8 = InvalidUtf8::kStop});
  WordCounter counter(options.cased);
  while (reader.next()) {
    for (const auto& field : reader.fields()) counter.add(field.text);
    if (options.progress && reader.rows() % kProgressRows == 0) options.progress(reader.rows());
  }
  MadeVocabulary made;
  made.tokens = piece_vocabulary(counter.counts(), options.size);
  made.rows = reader.rows();
  made.distinct = static_cast<std::int64_t>(counter.counts().size());
  const std::unordered_set<std::string_view> tokens(made.tokens.begin(), made.tokens.end());
  for (const auto& [word, count] : counter.counts()) {
    made.words += count;
    if (tokens.contains(word)) made.whole += count;
  }
  return made;
}

}  // namespace orthant
