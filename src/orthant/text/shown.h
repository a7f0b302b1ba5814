// Texts of a user's files in messages: short, on one line, and always whole characters of UTF-8.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace orthant {

// At most `bytes` of the text's beginning, ending between two characters of UTF-8.
std::string_view cut_text(std::string_view text, std::size_t bytes);

// In quotes, at most `bytes` of it, with "..." where it was cut; control characters are escaped.
std::string shown(std::string_view text, std::size_t bytes = 40);

}  // namespace orthant
