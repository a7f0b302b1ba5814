// The rules that a tokenizer.json's normalizer lists: Unicode normal forms, lower case, texts replaced or put before,
// white space and accents taken away, and the tables of SentencePiece. Each is exact for PyPI `tokenizers`.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "orthant/text/splitter.h"

namespace orthant {

class Charsmap;

// Immutable, safe from several threads.
class NormalizerRule {
 public:
  virtual ~NormalizerRule() = default;

  // `text` is well-formed UTF-8, and so is the result. DataError when it would be longer than `limit`.
  virtual std::string apply(std::string_view text, std::size_t limit) const = 0;
  // Whether text of ASCII comes out as it is.
  virtual bool keeps_ascii() const { return false; }
  // Whether the first character of the result always stands for the begin of the text.
  virtual bool keeps_begin() const { return true; }
  // For fingerprints: equal for equal rules.
  virtual std::string describe() const = 0;

 protected:
  // Adds to `out`, which has `limit` bytes at most.
  static void grow(std::string& out, std::string_view more, std::size_t limit);
};

using NormalizerRulePtr = std::shared_ptr<const NormalizerRule>;

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Normal forms are those of Unicode 9, which PyPI `tokenizers` has, whatever version utf8proc is of.
NormalizerRulePtr make_normal_form(NormalForm form);
NormalizerRulePtr make_lowercase();
// `prefix` goes before every text that is not empty.
NormalizerRulePtr make_prepend(std::string prefix);
// Every match becomes `content`. `description` tells splitters apart.
NormalizerRulePtr make_replace(std::shared_ptr<const Splitter> matches, std::string content, std::string description);
NormalizerRulePtr make_strip(bool left, bool right);
NormalizerRulePtr make_strip_accents();
// By whole characters as readers see them, the shortest entry of the table first.
NormalizerRulePtr make_precompiled(std::shared_ptr<const Charsmap> map);

}  // namespace orthant
