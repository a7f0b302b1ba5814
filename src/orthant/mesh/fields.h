// Splitting of the short texts that name meshes and orders: "pp=2, tp=2". Views into the caller's text.
#pragma once

#include <string_view>
#include <vector>

namespace orthant {

// Without blanks at both ends.
std::string_view trimmed(std::string_view text);

// The parts between separators, each trimmed; one empty part for an empty text.
std::vector<std::string_view> split_fields(std::string_view text, char separator);

}  // namespace orthant
