#include "orthant/base/printable.h"

#include <fmt/format.h>

#include <cstdint>

namespace orthant {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 0;  // 0: the text does not go on with a character of UTF-8
};

Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {};
  std::uint32_t code = lead & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  if (code < kLeast[length] || code > 0x10ffff || surrogate) return {};
  return {code, length};
}

bool harmless(std::uint32_t code) {
  if (code < 0x20 || (code >= 0x7f && code <= 0x9f)) return false;
  const bool separator = code == 0x2028 || code == 0x2029;
  const bool direction = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069);
  return !separator && !direction;
}

}  // namespace

std::string printable(std::string_view text, bool keep_lines) {
  std::string shown;
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    const bool stays = bytes > 0 && (harmless(code) || (keep_lines && code == '\n'));
    const auto taken = text.substr(0, bytes > 0 ? bytes : 1);
    if (stays) {
      shown += taken;
    } else {
      for (const char letter : taken) shown += fmt::format("\\x{:02x}", static_cast<unsigned char>(letter));
    }
    text.remove_prefix(taken.size());
  }
  return shown;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto bytes = first_character(text).bytes;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

}  // namespace orthant
