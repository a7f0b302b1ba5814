#include "orthant/text/utf8.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <filesystem>

#include "orthant/base/shell_quote.h"

namespace orthant {
namespace unicode {
namespace {

constexpr char32_t kEndOfCharacters = 0x110000;
constexpr char32_t kReplacement = 0xfffd;

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0) == 0x80;
}

}  // namespace

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
  if (overlong || surrogate || found.character >= kEndOfCharacters) return {};
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

bool is_utf16_mark(std::string_view text) {
  return text.starts_with("\xff\xfe") || text.starts_with("\xfe\xff");
}

}  // namespace unicode

std::optional<std::size_t> find_invalid_utf8(std::string_view text) {
  const auto valid = unicode::valid_length(text, 0);
  return valid < text.size() ? std::optional(valid) : std::nullopt;
}

std::string describe_invalid_utf8(std::string_view text, std::size_t at) {
  if (at == 0 && unicode::is_utf16_mark(text)) return "the file begins with the mark of UTF-16, and UTF-8 is read";
  return fmt::format("byte 0x{:02x} is not UTF-8", static_cast<unsigned char>(text[at]));
}

std::string utf8_remedy(const std::string& file, std::string_view text, std::size_t at) {
  std::filesystem::path made = file;
  made.replace_filename(made.stem().string() + "-utf8" + made.extension().string());
  return fmt::format("save the file as UTF-8: iconv -f {} -t UTF-8 {} > {}",
                     at == 0 && unicode::is_utf16_mark(text) ? "UTF-16" : "WINDOWS-1252", shell_quote(file),
                     shell_quote(made.string()));
}

}  // namespace orthant
