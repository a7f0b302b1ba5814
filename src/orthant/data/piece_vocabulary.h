// From counted words to a WordPiece vocabulary.
//
// Note [Counted vocabulary]: BERT's special tokens; every character that was seen, as a beginning of words and as a
// continuation (##c), as seen, and both forms of ASCII letters and digits, so that every word made of known characters
// has pieces; then whole words that came twice or more, frequent ones first, in three quarters of the room left; then
// the endings (##ing) that the words left over have most, in the rest; then words again while there is room. Ties go by
// bytes. [UNK] is left to characters that were never seen. Words longer than 64 characters make no pieces but their
// characters.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace orthant {

using WordCounts = std::unordered_map<std::string, std::int64_t>;

// The tokens in the order of their ids, `size` of them or fewer. Words are UTF-8 and not empty. ConfigError when `size`
// does not hold the special tokens and the characters.
std::vector<std::string> piece_vocabulary(const WordCounts& words, std::int64_t size);

}  // namespace orthant
