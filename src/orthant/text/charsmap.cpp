#include "orthant/text/charsmap.h"

#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/files/xxhash.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

// A unit of the trie: the byte that leads to it, where its children lie, and whether an entry ends there. The unit of
// an entry's end has the highest bit set and holds a number.
std::uint32_t label_of(std::uint32_t unit) {
  return unit & (0x80000000U | 0xffU);
}
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
bool has_entry(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

// Whether a byte of UTF-8 is not the first of its character.
bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U;
}

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  return value;
}

[[noreturn]] void refuse_table(const std::string& source, const std::string& what) {
  throw DataError(fmt::format("{}: the table of the normalizer (precompiled_charsmap) {}", source, what),
                  {.remedy = "copy the file again, or export the tokenizer once more"});
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& source) {
  if (bytes.size() > kMaxBytes) {
    refuse_table(source, fmt::format("has {} bytes; at most {} are read", bytes.size(), kMaxBytes));
  }
  if (bytes.size() < 8) refuse_table(source, fmt::format("has {} bytes, too few for a table", bytes.size()));
  const std::size_t trie_bytes = little_endian(bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes < 4 || trie_bytes > bytes.size() - 4) {
    refuse_table(source, fmt::format("says that {} of its {} bytes are the trie", trie_bytes, bytes.size()));
  }
  units_.resize(trie_bytes / 4);
  for (std::size_t i = 0; i < units_.size(); ++i) units_[i] = little_endian(bytes, 4 + 4 * i);
  results_ = bytes.substr(4 + trie_bytes);
  if (unicode::valid_length(results_, 0) != results_.size()) refuse_table(source, "has results that are not UTF-8");
  results_ += '\0';
  for (std::size_t byte = 0; byte < begins_.size(); ++byte) {
    const auto at = offset_of(units_[0]) ^ byte;
    begins_[byte] = at < units_.size() && label_of(units_[at]) == byte;
  }
  fingerprint_ = xxh64(std::as_bytes(std::span(bytes)));
}

Charsmap::Match Charsmap::walk(std::string_view text, bool first_only) const {
  Match match;
  std::size_t node = offset_of(units_[0]);
  for (std::size_t at = 0; at < text.size() && at < kMaxEntryBytes; ++at) {
    const std::uint32_t byte = static_cast<unsigned char>(text[at]);
    if (first_only && byte == 0) break;
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const auto unit = units_[node];
    node ^= offset_of(unit);
    if (!has_entry(unit)) continue;
    if (node >= units_.size()) break;
    const std::size_t begin = units_[node] & 0x7fffffffU;
    if (begin >= results_.size()) break;
    const bool whole = unicode::valid_length(text.substr(0, at + 1), 0) == at + 1;
    if (!whole || is_continuation(results_[begin])) continue;
    match = {at + 1, std::string_view(results_.data() + begin)};
    if (first_only) break;
  }
  return match;
}

}  // namespace orthant
