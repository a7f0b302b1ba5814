// What BERT's tokenizers know about characters, exactly as PyPI `tokenizers` has it: general categories of Unicode 8,
// decompositions of Unicode 9, lower case of Unicode 17. The answers do not depend on the version of utf8proc.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace orthant {

// Immutable; safe from several threads.
class BertCharacters {
 public:
  enum Flag : std::uint8_t {
    kRemoved = 1,       // by cleaning
    kSpace = 2,         // between words; some of them are also kRemoved
    kIdeograph = 4,     // a word of its own
    kMark = 8,          // an accent, to be stripped
    kOrderedMark = 16,  // stays, but has a place in the canonical order of marks
    kPunctuation = 32,  // a word of its own
  };

  static constexpr int kMaxParts = 8;
  struct Decomposition {
    std::array<char32_t, kMaxParts> codes;
    int size = 0;
  };

  BertCharacters();

  std::uint8_t flags(char32_t c) const { return c < kLowCodes ? low_[c] : high_flags(c); }

  // Of a mark in canonical order; 0 for what ends a run of marks.
  int combining_class(char32_t c) const;

  static Decomposition decompose(char32_t c);  // canonical and full; the character itself when it has none

  // One character; U+0130 has two in lower case, 'i' and U+0307, of which this is the first.
  static char32_t lower(char32_t c);

 private:
  static constexpr char32_t kLowCodes = 0x20000;
  static std::uint8_t high_flags(char32_t c);

  std::vector<std::uint8_t> low_;
};

}  // namespace orthant
