// The mark that SentencePiece writes for a space, and the words that begin with it.
//
// Note [Words at marks]: models over whole sentences have no pre-tokenizer. Where no token holds a mark behind another
// character, no merge ever joins text across the begin of a run of marks, so that the words between those places can be
// encoded one by one, and from a cache.
#pragma once

#include <cstddef>
#include <string_view>

namespace orthant {

inline constexpr std::string_view kSpaceMark = "\xe2\x96\x81";

// Whether a mark lies behind another character.
inline bool has_mark_inside(std::string_view token) {
  for (auto at = token.find(kSpaceMark); at != std::string_view::npos; at = token.find(kSpaceMark, at + 1)) {
    if (at > 0 && !token.substr(0, at).ends_with(kSpaceMark)) return true;
  }
  return false;
}

// Hands every word of `text` to `word(std::string_view)`: cuts lie before every run of marks.
template <typename Word>
void for_each_marked_word(std::string_view text, const Word& word) {
  std::size_t begin = 0;
  while (begin < text.size()) {
    auto at = begin;
    while (text.substr(at).starts_with(kSpaceMark)) at += kSpaceMark.size();
    const auto end = text.find(kSpaceMark, at);
    const auto next = end == std::string_view::npos ? text.size() : end;
    word(text.substr(begin, next - begin));
    begin = next;
  }
}

}  // namespace orthant
