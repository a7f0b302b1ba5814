#include "orthant/text/grapheme_cluster.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include "orthant/text/unicode.h"

namespace orthant {
namespace {

struct ClusterRange {
  char32_t first, last;
};

// Characters that extend a cluster since Unicode 15.1, or only stood behind one before.
constexpr ClusterRange kExtending[] = {
    {0x897, 0x897},     {0xcc0, 0xcc0},     {0xcc7, 0xcc8},     {0xcca, 0xccb},     {0x1715, 0x1715},
    {0x1734, 0x1734},   {0x1acf, 0x1add},   {0x1ae0, 0x1aeb},   {0x1b3b, 0x1b3b},   {0x1b3d, 0x1b3d},
    {0x1b43, 0x1b44},   {0x1baa, 0x1baa},   {0x1bf2, 0x1bf3},   {0xa953, 0xa953},   {0xa9c0, 0xa9c0},
    {0x10d69, 0x10d6d}, {0x10efa, 0x10efc}, {0x111c0, 0x111c0}, {0x11235, 0x11235}, {0x1134d, 0x1134d},
    {0x113b8, 0x113b8}, {0x113bb, 0x113c0}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113c9},
    {0x113ce, 0x113d0}, {0x113d2, 0x113d2}, {0x113e1, 0x113e2}, {0x116b6, 0x116b6}, {0x1193d, 0x1193d},
    {0x11b60, 0x11b60}, {0x11b62, 0x11b64}, {0x11b66, 0x11b66}, {0x11f41, 0x11f41}, {0x11f5a, 0x11f5a},
    {0x1611e, 0x16129}, {0x1612d, 0x1612f}, {0x16ff0, 0x16ff1}, {0x1d166, 0x1d166}, {0x1d16d, 0x1d16d},
    {0x1e5ee, 0x1e5ef}, {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5},
};

// Consonants that a linker joins, and the linkers.
constexpr ClusterRange kConsonants[] = {
    {0x915, 0x939},     {0x958, 0x95f},     {0x978, 0x97f},     {0x995, 0x9a8},     {0x9aa, 0x9b0},
    {0x9b2, 0x9b2},     {0x9b6, 0x9b9},     {0x9dc, 0x9dd},     {0x9df, 0x9df},     {0x9f0, 0x9f1},
    {0xa95, 0xaa8},     {0xaaa, 0xab0},     {0xab2, 0xab3},     {0xab5, 0xab9},     {0xaf9, 0xaf9},
    {0xb15, 0xb28},     {0xb2a, 0xb30},     {0xb32, 0xb33},     {0xb35, 0xb39},     {0xb5c, 0xb5d},
    {0xb5f, 0xb5f},     {0xb71, 0xb71},     {0xc15, 0xc28},     {0xc2a, 0xc39},     {0xc58, 0xc5a},
    {0xd15, 0xd3a},     {0x1000, 0x102a},   {0x103f, 0x103f},   {0x1050, 0x1055},   {0x105a, 0x105d},
    {0x1061, 0x1061},   {0x1065, 0x1066},   {0x106e, 0x1070},   {0x1075, 0x1081},   {0x108e, 0x108e},
    {0x1780, 0x17b3},   {0x1a20, 0x1a54},   {0x1b0b, 0x1b0c},   {0x1b13, 0x1b33},   {0x1b45, 0x1b4c},
    {0x1b83, 0x1ba0},   {0x1bae, 0x1baf},   {0x1bbb, 0x1bbd},   {0xa989, 0xa98b},   {0xa98f, 0xa9b2},
    {0xa9e0, 0xa9e4},   {0xa9e7, 0xa9ef},   {0xa9fa, 0xa9fe},   {0xaa60, 0xaa6f},   {0xaa71, 0xaa73},
    {0xaa7a, 0xaa7a},   {0xaa7e, 0xaa7f},   {0xaae0, 0xaaea},   {0xabc0, 0xabda},   {0x10a00, 0x10a00},
    {0x10a10, 0x10a13}, {0x10a15, 0x10a17}, {0x10a19, 0x10a35}, {0x11103, 0x11126}, {0x11144, 0x11144},
    {0x11147, 0x11147}, {0x11380, 0x11389}, {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x113b5},
    {0x11900, 0x11906}, {0x11909, 0x11909}, {0x1190c, 0x11913}, {0x11915, 0x11916}, {0x11918, 0x1192f},
    {0x11a00, 0x11a00}, {0x11a0b, 0x11a32}, {0x11a50, 0x11a50}, {0x11a5c, 0x11a83}, {0x11f04, 0x11f10},
    {0x11f12, 0x11f33},
};
constexpr ClusterRange kLinkers[] = {
    {0x94d, 0x94d},     {0x9cd, 0x9cd},     {0xacd, 0xacd},     {0xb4d, 0xb4d},     {0xc4d, 0xc4d},
    {0xd4d, 0xd4d},     {0x1039, 0x1039},   {0x17d2, 0x17d2},   {0x1a60, 0x1a60},   {0x1b44, 0x1b44},
    {0x1bab, 0x1bab},   {0xa9c0, 0xa9c0},   {0xaaf6, 0xaaf6},   {0x10a3f, 0x10a3f}, {0x11133, 0x11133},
    {0x113d0, 0x113d0}, {0x1193e, 0x1193e}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11f42, 0x11f42},
};

template <std::size_t N>
bool is_in(const ClusterRange (&ranges)[N], char32_t c) {
  const auto* after = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                       [](char32_t value, const ClusterRange& range) { return value < range.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

constexpr char32_t kAcute = 0x301;    // extends a cluster
constexpr char32_t kVisarga = 0x903;  // stands behind one
constexpr char32_t kDotReph = 0xd4e;  // stands before one
constexpr char32_t kZeroWidthNonJoiner = 0x200c;

// A character of Unicode 15 that clusters alike.
char32_t as_known(char32_t c) {
  if (c < 0x897) return c;
  if (is_in(kExtending, c)) return kAcute;
  if (c == 0x113d1) return kDotReph;
  if (c == 0x11b61 || c == 0x11b65 || c == 0x11b67) return kVisarga;
  for (const auto& update : unicode::category_updates()) {
    if (c >= update.first && c <= update.last && unicode::is_mark(update.category)) return kVisarga;
  }
  return c;
}

bool extends_cluster(char32_t known) {
  if (known == kZeroWidthNonJoiner) return false;
  const auto kind = utf8proc_get_property(static_cast<utf8proc_int32_t>(known))->boundclass;
  return kind == UTF8PROC_BOUNDCLASS_EXTEND || kind == UTF8PROC_BOUNDCLASS_ZWJ;
}

// Whether the text so far ends with a consonant, what extends it, and a linker among that.
class Conjunct {
 public:
  void take(char32_t c) {
    if (is_in(kConsonants, c)) {
      open_ = true;
      linked_ = false;
    } else if (open_ && (is_in(kLinkers, c) || extends_cluster(as_known(c)))) {
      linked_ = linked_ || is_in(kLinkers, c);
    } else {
      open_ = linked_ = false;
    }
  }
  bool joins(char32_t next) const { return linked_ && is_in(kConsonants, next); }

 private:
  bool open_ = false;
  bool linked_ = false;
};

}  // namespace

std::size_t grapheme_cluster_end(std::string_view text, std::size_t begin) {
  auto [last, length] = unicode::decode_valid(text.data() + begin);
  auto at = begin + static_cast<std::size_t>(length);
  utf8proc_int32_t state = 0;
  Conjunct conjunct;
  conjunct.take(last);
  while (at < text.size()) {
    const auto next = unicode::decode_valid(text.data() + at);
    if (last < 0x80 && next.character < 0x80 && last != '\r') break;
    const bool breaks = utf8proc_grapheme_break_stateful(
        static_cast<utf8proc_int32_t>(as_known(last)), static_cast<utf8proc_int32_t>(as_known(next.character)), &state);
    if (breaks && !conjunct.joins(next.character)) break;
    last = next.character;
    conjunct.take(last);
    at += static_cast<std::size_t>(next.length);
  }
  return at;
}

}  // namespace orthant
