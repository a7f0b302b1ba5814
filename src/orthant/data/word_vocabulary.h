// Words and their ids, for text whose words are separated by blanks. Ids 0 to 4 are BERT's special tokens, so a list
// written to vocab.txt, one word a line, is also a WordPiece vocabulary that gives the same ids.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace orthant {

// The parts of `text` between blanks.
std::vector<std::string_view> words_of(std::string_view text);

// An immutable value. Local.
class WordVocabulary {
 public:
  static constexpr std::int64_t kPad = 0;
  static constexpr std::int64_t kUnknown = 1;
  static constexpr std::int64_t kBegin = 2;      // [CLS]
  static constexpr std::int64_t kSeparator = 3;  // [SEP]

  // The special tokens, then the different words of `texts` in alphabetic order.
  explicit WordVocabulary(std::span<const std::string> texts);

  std::int64_t size() const { return static_cast<std::int64_t>(words_.size()); }
  const std::vector<std::string>& words() const { return words_; }

  // kUnknown for a word that is not in the list.
  std::int64_t id(std::string_view word) const;

  // [CLS], the words, [SEP], then padding; text that is too long loses its end. `mask` is true where there is no
  // padding. Both spans have the same length, at least 2.
  void encode(std::string_view text, std::span<std::int64_t> ids, std::span<bool> mask) const;

 private:
  std::vector<std::string> words_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

}  // namespace orthant
