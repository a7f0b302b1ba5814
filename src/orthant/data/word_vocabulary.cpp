#include "orthant/data/word_vocabulary.h"

#include <algorithm>
#include <set>

namespace orthant {

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    if (end > 0) words.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

WordVocabulary::WordVocabulary(std::span<const std::string> texts)
    : words_{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"} {
  std::set<std::string_view> different;
  for (const std::string& text : texts) {
    for (const std::string_view word : words_of(text)) different.insert(word);
  }
  words_.insert(words_.end(), different.begin(), different.end());
  for (std::size_t i = 0; i < words_.size(); ++i) ids_.emplace(words_[i], static_cast<std::int64_t>(i));
}

std::int64_t WordVocabulary::id(std::string_view word) const {
  const auto found = ids_.find(std::string(word));
  return found == ids_.end() ? kUnknown : found->second;
}

void WordVocabulary::encode(std::string_view text, std::span<std::int64_t> ids, std::span<bool> mask) const {
  std::ranges::fill(ids, kPad);
  std::size_t used = 0;
  ids[used++] = kBegin;
  for (const std::string_view word : words_of(text)) {
    if (used + 1 == ids.size()) break;
    ids[used++] = id(word);
  }
  ids[used++] = kSeparator;
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i < used;
}

}  // namespace orthant
