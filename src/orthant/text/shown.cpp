#include "orthant/text/shown.h"

#include <fmt/format.h>

namespace orthant {

std::string_view cut_text(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (static_cast<unsigned char>(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::string shown(std::string_view text, std::size_t bytes) {
  const auto cut = cut_text(text, bytes);
  std::string escaped;
  for (const char letter : cut) {
    const auto byte = static_cast<unsigned char>(letter);
    escaped += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, letter);
  }
  return fmt::format("\"{}{}\"", escaped, cut.size() < text.size() ? "..." : "");
}

}  // namespace orthant
