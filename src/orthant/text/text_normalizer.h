// Unicode normal forms and lower case, in the order that a tokenizer.json lists them. Normal forms are those of Unicode
// 9, which PyPI `tokenizers` has, whatever version utf8proc is of. Bytes that are not UTF-8 pass through.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orthant {

enum class NormalizerStep { nfc, nfd, nfkc, nfkd, lowercase };

// Immutable, safe from several threads.
class TextNormalizer {
 public:
  TextNormalizer() = default;
  explicit TextNormalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  // `text` itself when there is nothing to do, else a view of `buffer`.
  std::string_view apply(std::string_view text, std::string& buffer) const;
  // For fingerprints: equal for equal steps.
  std::string describe() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace orthant
