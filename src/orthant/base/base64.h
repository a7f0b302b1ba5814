// Bytes from their text in base64, as JSON files hold them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace orthant {

// Nothing for text that is not base64 with its padding.
std::optional<std::string> bytes_of_base64(std::string_view text);

}  // namespace orthant
