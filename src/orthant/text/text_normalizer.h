// The normalizer of a tokenizer.json: its rules, one after the other.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/normalizer_rule.h"

namespace orthant {

// Immutable, safe from several threads.
class TextNormalizer {
 public:
  TextNormalizer() = default;
  explicit TextNormalizer(std::vector<NormalizerRulePtr> rules) : rules_(std::move(rules)) {}

  // `text` itself when there is nothing to do, else a view of `buffer`. Bytes that are not UTF-8 pass through, and the
  // text on both sides is normalised by itself.
  std::string_view apply(std::string_view text, std::string& buffer) const;
  // The same, but such bytes become U+FFFD before the first rule.
  std::string_view apply_replacing(std::string_view text, std::string& buffer) const;

  // Whether every rule keeps the begin of a text.
  bool keeps_begin() const;
  // For fingerprints: equal for equal rules.
  std::string describe() const;

 private:
  bool changes(std::string_view text) const;
  std::string apply_rules(std::string text, std::size_t limit) const;

  std::vector<NormalizerRulePtr> rules_;
};

}  // namespace orthant
