#include "orthant/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "orthant/text/unicode.h"

namespace orthant {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

constexpr std::size_t kNumOthers = 68;  // bytes that do not stand for themselves

// Character of each byte, and byte of each character below U+0100 + 68; -1 for characters that are not of the alphabet.
struct Alphabet {
  std::array<char16_t, 256> characters = {};
  std::array<std::int16_t, 256 + kNumOthers> bytes = {};
};

constexpr Alphabet kAlphabet = [] {
  Alphabet alphabet;
  for (auto& byte : alphabet.bytes) byte = -1;
  char16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const auto character = stands_for_itself(byte) ? static_cast<char16_t>(byte) : next++;
    alphabet.characters[static_cast<std::size_t>(byte)] = character;
    alphabet.bytes[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}();

}  // namespace

std::optional<std::string> bytes_of_spelling(std::string_view spelling) {
  std::string bytes;
  for (std::size_t at = 0; at < spelling.size();) {
    const auto [character, length] = unicode::decode(spelling, at);
    if (length == 0 || character >= kAlphabet.bytes.size() || kAlphabet.bytes[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.bytes[character]);
    at += static_cast<std::size_t>(length);
  }
  return bytes;
}

std::string spelling_of_bytes(std::string_view bytes) {
  std::string spelling;
  for (const char byte : bytes) {
    unicode::append_utf8(spelling, kAlphabet.characters[static_cast<unsigned char>(byte)]);
  }
  return spelling;
}

}  // namespace orthant
