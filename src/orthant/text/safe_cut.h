// Where a long text may be cut so that its parts can be encoded one after the other.
//
// Note [Safe cuts]: a safe cut lies after a line end that stands alone between two ASCII letters, digits or stops. The
// hand-written splitters (word_splitter.h) and WordPiece never make a word across such a place, normal forms never
// compose across it, and Tokenizer::may_be_cut() looks at the added tokens. Then the ids of the parts, all but the
// first encoded with EncodeOptions::continues, are those of the whole text.
#pragma once

#include <cstddef>
#include <string_view>

namespace orthant {

// What must stand on either side of the line end.
inline bool may_touch_cut(char letter) {
  const bool word =
      (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9');
  return word || std::string_view(".,;:!?").find(letter) != std::string_view::npos;
}

// The last safe cut of a text; 0: there is none.
inline std::size_t last_safe_cut(std::string_view text) {
  for (auto place = text.rfind('\n'); place != std::string_view::npos && place > 0;
       place = text.rfind('\n', place - 1)) {
    if (place + 1 < text.size() && may_touch_cut(text[place - 1]) && may_touch_cut(text[place + 1])) return place + 1;
  }
  return 0;
}

}  // namespace orthant
