// What tokenizers ask about a character: its general category in Unicode 16 (utf8proc's tables, with what came since),
// whether it is white space, and how it is written in UTF-8. Categories differ between Unicode versions, so that every
// question goes through here.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "orthant/text/utf8.h"

namespace orthant::unicode {

// In the order of utf8proc_category_t, two letters each as the standard spells them.
// clang-format off
enum class Category : std::uint8_t {
  Cn, Lu, Ll, Lt, Lm, Lo, Mn, Mc, Me, Nd, Nl, No, Pc, Pd, Ps, Pe, Pi, Pf, Po, Sm, Sc, Sk, So, Zs, Zl, Zp, Cc, Cf, Cs, Co
};
// clang-format on

struct CategoryRange {
  char32_t first = 0;
  char32_t last = 0;
  Category category = Category::Cn;
};

// What utf8proc's own tables lack.
std::span<const CategoryRange> category_updates();

Category category(char32_t character);

inline bool is_letter(Category c) {
  return c >= Category::Lu && c <= Category::Lo;
}
inline bool is_mark(Category c) {
  return c >= Category::Mn && c <= Category::Me;
}
inline bool is_number(Category c) {
  return c >= Category::Nd && c <= Category::No;
}
inline bool is_punctuation(Category c) {
  return c >= Category::Pc && c <= Category::Po;
}

// The property White_Space: tab to carriage return, space, U+0085, U+00A0, U+1680, U+2000 to U+200A, ...
bool is_space(char32_t character);
// A letter, mark, decimal digit, letter number, connector punctuation, or joiner: \w.
bool is_word(char32_t character);

// What the regular expressions of GPT-2 and its kind tell apart.
enum class Kind : std::uint8_t { other, letter, number, space };

// Kinds of all characters in 256-blocks, equal blocks shared: 70 kB. Immutable.
class KindTable {
 public:
  // Built when first asked for, in milliseconds. A constant: nothing can change it.
  static const KindTable& get();

  Kind operator[](char32_t character) const {
    return static_cast<Kind>(blocks_[index_[character >> 8] * 256u + (character & 255)]);
  }

 private:
  KindTable();

  std::vector<std::uint16_t> index_;
  std::vector<std::uint8_t> blocks_;
};

void append_utf8(std::string& out, char32_t character);

}  // namespace orthant::unicode
