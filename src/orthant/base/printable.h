// Text that somebody else wrote (a peer, a file, a user's configuration) made fit for a terminal or a log: it cannot
// move the cursor, fake a line of its own or change colours.
#pragma once

#include <string>
#include <string_view>

namespace orthant {

// Control characters (C0, DEL, C1), line and paragraph separators, characters that change the direction of writing and
// bytes that are no UTF-8 become \xNN, one per byte; all else stays, line breaks only when `keep_lines`.
std::string printable(std::string_view text, bool keep_lines = false);

bool is_utf8(std::string_view text);

}  // namespace orthant
