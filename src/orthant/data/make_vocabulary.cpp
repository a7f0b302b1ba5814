#include "orthant/data/make_vocabulary.h"

#include <algorithm>
#include <unordered_set>

#include "orthant/base/error.h"
#include "orthant/data/piece_vocabulary.h"
#include "orthant/text/bert_normalizer.h"
#include "orthant/text/table_reader.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

constexpr std::int64_t kProgressRows = 4096;

// Counts words as the WordPiece tokenizer cuts them.
class WordCounter {
 public:
  explicit WordCounter(bool cased) : normalizer_({.strip_accents = !cased, .lowercase = !cased}, characters_) {}

  void add(std::string_view text) {
    const auto normal = normalizer_.normalize(text, buffer_);
    std::size_t begin = 0;
    const auto end_word = [&](std::size_t end) {
      if (end > begin) count(normal.substr(begin, end - begin));
    };
    for (std::size_t at = 0; at < normal.size();) {
      const auto decoded = unicode::decode(normal, at);
      const auto next = at + static_cast<std::size_t>(std::max(decoded.length, 1));
      const auto flags = characters_.flags(decoded.character);
      if (flags & (BertCharacters::kSpace | BertCharacters::kPunctuation)) {
        end_word(at);
        if (!(flags & BertCharacters::kSpace)) count(normal.substr(at, next - at));
        begin = next;
      }
      at = next;
    }
    end_word(normal.size());
  }

  const WordCounts& counts() const { return counts_; }

 private:
  void count(std::string_view word) { ++counts_[std::string(word)]; }

  BertCharacters characters_;
  BertNormalizer normalizer_;
  std::string buffer_;
  WordCounts counts_;
};

}  // namespace

MadeVocabulary make_vocabulary(const MakeVocabularyOptions& options) {
  if (options.columns.empty()) {
    throw ConfigError("no columns are named to make a vocabulary from", {.remedy = "set --columns title,plot"});
  }
  auto reader = TableReader::open(options.path, {.columns = options.columns, .bad_rows = BadRows::kSkip});
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
