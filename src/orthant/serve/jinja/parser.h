// Reads the tokens of a chat template into a tree. What is not read is refused with the line and, where it has one, by
// the name of the construct.
#pragma once

#include <string>
#include <string_view>

#include "orthant/serve/jinja/tree.h"

namespace orthant::jinja {

// DataError, "FILE:LINE: ...".
Statements parse_template(std::string_view text, const std::string& source);

}  // namespace orthant::jinja
