// The alphabet in which byte-level vocabularies are written: each of the 256 bytes as one visible character. Printable
// Latin-1 stands for itself; the others, in order, are U+0100 on, so that a space is U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace orthant {

// The bytes that a token stands for; nothing when a character is not of the alphabet.
std::optional<std::string> bytes_of_spelling(std::string_view spelling);

std::string spelling_of_bytes(std::string_view bytes);

}  // namespace orthant
