// BERT's way to make text uniform before it is cut into words: control characters go, ideographs stand alone, accents
// and capital letters may go. The result is always UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "orthant/text/bert_characters.h"

namespace orthant {

struct BertNormalizerOptions {
  bool clean = true;       // removes control and replacement characters; every white space becomes a blank
  bool ideographs = true;  // blanks around each
  bool strip_accents = true;
  bool lowercase = true;
};

// Immutable; safe from several threads. Borrows the characters.
class BertNormalizer {
 public:
  BertNormalizer(const BertNormalizerOptions& options, const BertCharacters& characters);

  // Either `text` itself, when nothing changes, or a view of `buffer`. Bytes that are not UTF-8 become U+FFFD, one for
  // each longest sequence that could have begun a character (and go, when cleaning).
  std::string_view normalize(std::string_view text, std::string& buffer) const;

 private:
  // Marks that wait for their canonical order, by class and, within it, as they came; and the character.
  using Marks = std::vector<std::pair<std::uint64_t, char32_t>>;

  void add(char32_t c, std::string& out, Marks& marks) const;
  void add_decomposed(char32_t c, std::string& out, Marks& marks) const;
  void add_cased(char32_t c, std::string& out) const;
  void flush(std::string& out, Marks& marks) const;

  BertNormalizerOptions options_;
  const BertCharacters& characters_;
  std::array<bool, 256> plain_ = {};            // ASCII that becomes one byte
  std::array<unsigned char, 256> mapped_ = {};  // that byte
};

}  // namespace orthant
