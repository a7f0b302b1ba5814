#include "orthant/text/text_normalizer.h"

#include <algorithm>

#include "orthant/text/unicode.h"

namespace orthant {
namespace {

bool is_ascii(std::string_view text) {
  return std::none_of(text.begin(), text.end(), [](char letter) { return static_cast<unsigned char>(letter) >= 0x80; });
}

// Far above what any rule of a real tokenizer makes of a text: one character becomes 33 bytes at most.
std::size_t longest_result(std::string_view text) {
  return text.size() * 64 + 4096;
}

}  // namespace

bool TextNormalizer::changes(std::string_view text) const {
  return !std::ranges::all_of(rules_, [](const auto& rule) { return rule->keeps_ascii(); }) || !is_ascii(text);
}

std::string TextNormalizer::apply_rules(std::string text, std::size_t limit) const {
  for (const auto& rule : rules_) text = rule->apply(text, limit);
  return text;
}

std::string_view TextNormalizer::apply(std::string_view text, std::string& buffer) const {
  if (rules_.empty() || !changes(text)) return text;
  const auto limit = longest_result(text);
  buffer.clear();
  for (std::size_t at = 0; at < text.size();) {
    const auto length = unicode::valid_length(text, at);
    buffer += apply_rules(std::string(text.substr(at, length)), limit);
    at += length;
    if (at < text.size()) buffer += text[at++];
  }
  return buffer;
}

std::string_view TextNormalizer::apply_replacing(std::string_view text, std::string& buffer) const {
  if (unicode::valid_length(text, 0) == text.size()) return apply(text, buffer);
  std::string valid;
  for (std::size_t at = 0; at < text.size();) unicode::append_utf8(valid, unicode::decode_replacing(text, at));
  buffer = apply_rules(std::move(valid), longest_result(text));
  return buffer;
}

bool TextNormalizer::keeps_begin() const {
  return std::ranges::all_of(rules_, [](const auto& rule) { return rule->keeps_begin(); });
}

std::string TextNormalizer::describe() const {
  std::string text = "normalizer";
  for (const auto& rule : rules_) text += " " + rule->describe();
  return text;
}

}  // namespace orthant
