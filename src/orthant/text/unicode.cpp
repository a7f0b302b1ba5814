#include "orthant/text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <map>

namespace orthant::unicode {
namespace {

constexpr char32_t kNumCharacters = 0x110000;
constexpr char32_t kReplacement = 0xfffd;

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

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

Decoded decode_valid(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

Decoded decode(std::string_view text, std::size_t at) {
  const auto left = text.size() - at;
  const auto first = static_cast<unsigned char>(text[at]);
  if (first < 0x80) return {first, 1};
  const int length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || left < static_cast<std::size_t>(length)) return {};
  for (int i = 1; i < length; ++i) {
    if (!is_continuation(text[at + static_cast<std::size_t>(i)])) return {};
  }
  const auto found = decode_valid(text.data() + at);
  const bool overlong = (length == 3 && found.character < 0x800) || (length == 4 && found.character < 0x10000);
  const bool surrogate = found.character >= 0xd800 && found.character < 0xe000;
  if (overlong || surrogate || found.character >= kNumCharacters) return {};
  return found;
}

char32_t decode_replacing(std::string_view text, std::size_t& at) {
  const auto lead = static_cast<unsigned char>(text[at++]);
  if (lead < 0x80) return lead;
  if (lead < 0xc2 || lead > 0xf4) return kReplacement;
  const int num_more = lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
  unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
  char32_t code = lead & (0x3f >> num_more);
  for (int i = 0; i < num_more; ++i) {
    if (at >= text.size()) return kReplacement;
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < low || byte > high) return kReplacement;
    code = (code << 6) | (byte & 0x3f);
    ++at;
    low = 0x80;
    high = 0xbf;
  }
  return code;
}

std::size_t valid_length(std::string_view text, std::size_t from) {
  auto at = from;
  while (at < text.size()) {
    std::uint64_t eight = 0;
    if (text.size() - at >= sizeof eight) {
      std::memcpy(&eight, text.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const auto length = decode(text, at).length;
    if (length == 0) break;
    at += static_cast<std::size_t>(length);
  }
  return at - from;
}

void append_utf8(std::string& out, char32_t character) {
  utf8proc_uint8_t bytes[4];
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  out.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(length));
}

}  // namespace orthant::unicode
