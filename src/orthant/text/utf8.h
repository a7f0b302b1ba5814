// Characters of UTF-8, and what to tell a user whose file is written otherwise.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace orthant {
namespace unicode {

// One character of UTF-8. `length` is 0 when the bytes at `at` are not a well-formed character.
struct Decoded {
  char32_t character = 0;
  int length = 0;
};
Decoded decode(std::string_view text, std::size_t at);
// The same for text that is known to be well-formed.
Decoded decode_valid(const char* at);

// The character at `at`, which must lie in the text; `at` goes to the next one. What is not UTF-8 becomes U+FFFD: one
// for each longest begin of a character, as Python's errors="replace" has it.
char32_t decode_replacing(std::string_view text, std::size_t& at);

// Bytes from `from` on that are well-formed UTF-8.
std::size_t valid_length(std::string_view text, std::size_t from);

// Whether the text begins with the byte order mark of UTF-16, which is not UTF-8.
bool is_utf16_mark(std::string_view text);

}  // namespace unicode

// The first byte that is not UTF-8; nothing where all of the text is.
std::optional<std::size_t> find_invalid_utf8(std::string_view text);

// What such a byte is: `byte 0xe9 is not UTF-8`. UTF-16 is known by the mark that it begins with.
std::string describe_invalid_utf8(std::string_view text, std::size_t at);

// The line that makes UTF-8 of the file, where that byte was found.
std::string utf8_remedy(const std::string& file, std::string_view text, std::size_t at);

}  // namespace orthant
