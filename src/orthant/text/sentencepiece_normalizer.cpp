#include "orthant/text/sentencepiece_normalizer.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/text/space_mark.h"
#include "orthant/text/unicode.h"

namespace orthant {

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceFile& file, const PieceTrie& kept)
    : kept_(kept),
      add_prefix_(file.add_prefix && !file.space_as_suffix),
      add_suffix_(file.add_prefix && file.space_as_suffix),
      remove_extra_(file.remove_extra_spaces),
      space_(file.escape_spaces ? kSpaceMark : " ") {
  if (!file.charsmap.empty()) map_.emplace(file.charsmap, file.source);
}

SentencePieceNormalizer::Part SentencePieceNormalizer::next(std::string_view text) const {
  if (const auto match = kept_.longest(PieceTrie::Root::kBegin, text); match.length > 0) {
    return {text.substr(0, match.length), match.length};
  }
  if (map_ && map_->may_begin(text[0])) {
    if (const auto match = map_->longest(text); match.length > 0) return {match.result, match.length};
  }
  const auto length = static_cast<std::size_t>(unicode::decode(text, 0).length);
  if (length == 0) return {"\xef\xbf\xbd", 1};
  return {text.substr(0, length), length};
}

void SentencePieceNormalizer::add(std::string_view part, std::string& out) const {
  for (const char letter : part) {
    if (letter == ' ') {
      out += space_;
    } else {
      out += letter;
    }
  }
}

std::string SentencePieceNormalizer::normalize(std::string_view text) const {
  const auto limit = text.size() * 64 + 4096;  // far above what the tables in use make of a text
  std::string out;
  while (remove_extra_ && !text.empty()) {
    const auto part = next(text);
    if (part.text != " ") break;
    text.remove_prefix(part.length);
  }
  if (text.empty()) return out;
  out.reserve(text.size() + text.size() / 2);
  if (add_prefix_) out += space_;
  bool after_space = remove_extra_;
  while (!text.empty()) {
    auto [part, length] = next(text);
    while (after_space && part.starts_with(' ')) part.remove_prefix(1);
    if (out.size() + part.size() > limit) {
      throw DataError(fmt::format("the normalizer makes more than {} bytes of one text", limit),
                      {.remedy = "use a model whose table does not make text many times longer"});
    }
    add(part, out);
    if (!part.empty()) after_space = remove_extra_ && part.ends_with(' ');
    text.remove_prefix(length);
  }
  while (remove_extra_ && out.ends_with(space_)) out.resize(out.size() - space_.size());
  if (add_suffix_) out += space_;
  return out;
}

}  // namespace orthant
