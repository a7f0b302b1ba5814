#include "orthant/text/bert_normalizer.h"

#include <algorithm>

#include "orthant/text/unicode.h"

namespace orthant {
BertNormalizer::BertNormalizer(const BertNormalizerOptions& options, const BertCharacters& characters)
    : options_(options), characters_(characters) {
  for (std::size_t c = 0; c < 0x80; ++c) {
    const auto flags = characters_.flags(static_cast<char32_t>(c));
    plain_[c] = !(options_.clean && (flags & BertCharacters::kRemoved));
    mapped_[c] = static_cast<unsigned char>(c);
    if (options_.clean && (flags & BertCharacters::kSpace)) mapped_[c] = ' ';
    if (options_.lowercase && c >= 'A' && c <= 'Z') mapped_[c] = static_cast<unsigned char>(c - 'A' + 'a');
  }
}

std::string_view BertNormalizer::normalize(std::string_view text, std::string& buffer) const {
  const auto byte_at = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  std::size_t at = 0;
  while (at < text.size() && plain_[byte_at(at)] && mapped_[byte_at(at)] == byte_at(at)) ++at;
  if (at == text.size()) return text;
  buffer.assign(text.substr(0, at));
  buffer.reserve(text.size());
  Marks marks;
  while (at < text.size()) {
    const std::size_t begin = at;
    while (at < text.size() && plain_[byte_at(at)]) ++at;
    if (at > begin) {
      flush(buffer, marks);
      const std::size_t out = buffer.size();
      buffer.append(text, begin, at - begin);
      for (std::size_t i = out; i < buffer.size(); ++i) {
        buffer[i] = static_cast<char>(mapped_[static_cast<unsigned char>(buffer[i])]);
      }
    }
    if (at < text.size()) add(unicode::decode_replacing(text, at), buffer, marks);
  }
  flush(buffer, marks);
  return buffer;
}

void BertNormalizer::add(char32_t c, std::string& out, Marks& marks) const {
  const auto flags = characters_.flags(c);
  if (options_.clean && (flags & BertCharacters::kRemoved)) return;
  if (options_.clean && (flags & BertCharacters::kSpace)) c = ' ';
  const bool alone = options_.ideographs && (flags & BertCharacters::kIdeograph);
  if (alone) {
    flush(out, marks);
    out += ' ';
  }
  if (options_.strip_accents) {
    add_decomposed(c, out, marks);
  } else {
    add_cased(c, out);
  }
  if (alone) out += ' ';
}

void BertNormalizer::add_decomposed(char32_t c, std::string& out, Marks& marks) const {
  const auto parts = BertCharacters::decompose(c);
  for (int i = 0; i < parts.size; ++i) {
    const char32_t part = parts.codes[static_cast<std::size_t>(i)];
    const int order = characters_.combining_class(part);
    if (order == 0) flush(out, marks);
    if (characters_.flags(part) & BertCharacters::kMark) continue;
    if (order == 0) {
      add_cased(part, out);
    } else {
      marks.emplace_back(static_cast<std::uint64_t>(order) << 32 | marks.size(), part);
    }
  }
}

void BertNormalizer::add_cased(char32_t c, std::string& out) const {
  constexpr char32_t kDottedCapitalI = 0x130;
  unicode::append_utf8(out, options_.lowercase ? BertCharacters::lower(c) : c);
  if (options_.lowercase && c == kDottedCapitalI) unicode::append_utf8(out, 0x307);
}

void BertNormalizer::flush(std::string& out, Marks& marks) const {
  if (marks.empty()) return;
  std::sort(marks.begin(), marks.end());
  for (const auto& [rank, mark] : marks) add_cased(mark, out);
  marks.clear();
}

}  // namespace orthant
