// Words of commands that errors and scripts hand to a shell.
#pragma once

#include <string>

namespace orthant {

// One word as a POSIX shell reads it back unchanged.
std::string shell_quote(const std::string& word);

}  // namespace orthant
