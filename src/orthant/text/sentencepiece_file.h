// What a SentencePiece `.model` says: its pieces with scores and types, and how text is normalised.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

struct SentencePieceFile {
  enum class Kind { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class Type { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    Type type = Type::normal;
  };

  std::string source;
  std::vector<Piece> pieces;  // by id
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;  // the mark of a space ends a word instead of beginning it
  std::string begin = "<s>";     // pieces with a role
  std::string end = "</s>";
  std::string pad = "<pad>";
  std::string unknown_text = " \xe2\x81\x87 ";  // what the unknown piece is decoded to
  std::string charsmap;                         // empty: text is taken as it is
  bool add_prefix = true;                       // a space before the text
  bool remove_extra_spaces = true;              // at both ends and in runs
  bool escape_spaces = true;                    // spaces become kSpaceMark

  std::int32_t unknown_id() const;
};

// DataError that begins with `source` for bytes that are not such a file, for pieces that are empty, not UTF-8, not
// finite or of an unknown type, for a missing or second unknown piece, a missing trainer_spec or normalizer_spec, for
// byte pieces that do not fit byte_fallback, and for the kinds word and character, a denormalizer, and unused pieces in
// BPE, which are not read.
SentencePieceFile parse_sentencepiece(std::string_view bytes, const std::string& source);

}  // namespace orthant
