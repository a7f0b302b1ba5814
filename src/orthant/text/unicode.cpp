#include "orthant/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <map>

namespace orthant::unicode {
namespace {

constexpr char32_t kNumCharacters = 0x110000;

}  // namespace

Category category(char32_t character) {
  if (character >= kNumCharacters) return Category::Cn;
  const auto updates = category_updates();
  const auto after = std::upper_bound(updates.begin(), updates.end(), character,
                                      [](char32_t value, const CategoryRange& range) { return value < range.first; });
  if (after != updates.begin() && character <= std::prev(after)->last) return std::prev(after)->category;
  return static_cast<Category>(utf8proc_category(static_cast<utf8proc_int32_t>(character)));
}

bool is_space(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
         c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_word(char32_t c) {
  const auto kind = category(c);
  return is_letter(kind) || is_mark(kind) || kind == Category::Nd || kind == Category::Nl || kind == Category::Pc ||
         c == 0x200c || c == 0x200d ||  // the joiners
         (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);  // circled and squared letters are alphabetic symbols
}

const KindTable& KindTable::get() {
  static const KindTable kTable;
  return kTable;
}

KindTable::KindTable() {
  std::map<std::vector<std::uint8_t>, std::uint16_t> known;
  std::vector<std::uint8_t> block(256);
  for (char32_t begin = 0; begin < kNumCharacters; begin += 256) {
    for (char32_t i = 0; i < 256; ++i) {
      const auto of = category(begin + i);
      const auto kind = is_letter(of)         ? Kind::letter
                        : is_number(of)       ? Kind::number
                        : is_space(begin + i) ? Kind::space
                                              : Kind::other;
      block[i] = static_cast<std::uint8_t>(kind);
    }
    const auto [place, is_new] = known.try_emplace(block, static_cast<std::uint16_t>(known.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    index_.push_back(place->second);
  }
}

void append_utf8(std::string& out, char32_t character) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

}  // namespace orthant::unicode
