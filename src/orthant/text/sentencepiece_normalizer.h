// How SentencePiece makes text uniform: by a table of characters, with spaces joined, marked and put before the text.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "orthant/text/charsmap.h"
#include "orthant/text/piece_trie.h"
#include "orthant/text/sentencepiece_file.h"

namespace orthant {

// Immutable, safe from several threads.
class SentencePieceNormalizer {
 public:
  // `kept` are the pieces that users defined: they stay as they are. It must outlive this.
  SentencePieceNormalizer(const SentencePieceFile& file, const PieceTrie& kept);

  // Bytes that are not UTF-8 become U+FFFD each. DataError when the table makes the text many times longer.
  std::string normalize(std::string_view text) const;

 private:
  // What the begin of a text becomes, and how many of its bytes.
  struct Part {
    std::string_view text;
    std::size_t length = 0;
  };
  Part next(std::string_view text) const;
  void add(std::string_view part, std::string& out) const;

  const PieceTrie& kept_;
  std::optional<Charsmap> map_;
  bool add_prefix_;
  bool add_suffix_;
  bool remove_extra_;
  std::string space_;
};

}  // namespace orthant
