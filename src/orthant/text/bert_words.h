// Normalised text to words as BERT cuts it: at white space, which goes, and around punctuation, which is a word of its
// own. Shared by WordPiece and by what counts words for a new vocabulary.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "orthant/text/bert_characters.h"
#include "orthant/text/unicode.h"

namespace orthant {

// Immutable; safe from several threads. Borrows the characters.
class BertWords {
 public:
  explicit BertWords(const BertCharacters& characters) : characters_(characters) {
    for (std::size_t byte = 0; byte < classes_.size(); ++byte) {
      classes_[byte] = byte < 0x80 ? class_of(static_cast<char32_t>(byte)) : ByteClass::kLonger;
    }
  }

  // Calls word(std::string_view, std::int64_t num_characters) for every word, in order; none is empty.
  template <typename Word>
  void for_each(std::string_view text, const Word& word) const;

 private:
  enum class ByteClass : std::uint8_t { kLetter, kSpace, kPunctuation, kLonger };

  ByteClass class_of(char32_t c) const {
    const auto flags = characters_.flags(c);
    if (flags & BertCharacters::kSpace) return ByteClass::kSpace;
    return flags & BertCharacters::kPunctuation ? ByteClass::kPunctuation : ByteClass::kLetter;
  }

  const BertCharacters& characters_;
  std::array<ByteClass, 256> classes_ = {};  // kLonger: of a character of several bytes
};

template <typename Word>
void BertWords::for_each(std::string_view text, const Word& word) const {
  std::size_t begin = 0;  // of the word that `at` is in
  std::int64_t num_characters = 0;
  const auto end_word = [&](std::size_t end) {
    if (end > begin) word(text.substr(begin, end - begin), num_characters);
    num_characters = 0;
  };
  for (std::size_t at = 0; at < text.size();) {
    ByteClass kind = classes_[static_cast<unsigned char>(text[at])];
    std::size_t length = 1;
    if (kind == ByteClass::kLonger) {
      const auto decoded = unicode::decode(text, at);
      length = decoded.length == 0 ? 1 : static_cast<std::size_t>(decoded.length);
      kind = class_of(decoded.character);
    }
    if (kind == ByteClass::kLetter) {
      ++num_characters;
    } else {
      end_word(at);
      if (kind == ByteClass::kPunctuation) word(text.substr(at, length), std::int64_t{1});
      begin = at + length;
    }
    at += length;
  }
  end_word(text.size());
}

}  // namespace orthant
