#include "orthant/text/normalizer_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

struct MarkRange {
  char32_t first, last;
};

// Marks that Unicode 10 to 14 added: Unicode 9, whose marks `tokenizers` strips, does not know them.
constexpr MarkRange kMarksSince10[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x180f, 0x180f},   {0x1abf, 0x1ace},
    {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},   {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27},
    {0x10eab, 0x10eac}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074},
    {0x110c2, 0x110c2}, {0x11145, 0x11146}, {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x1133b, 0x1133b},
    {0x1145e, 0x1145e}, {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e},
    {0x11940, 0x11940}, {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4},
    {0x11a01, 0x11a0a}, {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b},
    {0x11a8a, 0x11a99}, {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45},
    {0x11d47, 0x11d47}, {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6},
    {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
};

bool is_mark_of_unicode_9(char32_t c) {
  if (c < 0x300) return false;
  if (c == 0x1cf2 || c == 0x1cf3) return true;  // letters since
  if (c == 0x1171e) return true;                // of another kind since
  if (!unicode::is_mark(unicode::category(c))) return false;
  const auto holds = [c](const auto& range) { return c >= range.first && c <= range.last; };
  return std::ranges::none_of(kMarksSince10, holds) && std::ranges::none_of(unicode::category_updates(), holds);
}

class PrependRule : public NormalizerRule {
 public:
  explicit PrependRule(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string apply(std::string_view text, std::size_t limit) const override {
    std::string out;
    if (text.empty()) return out;
    grow(out, prefix_, limit);
    grow(out, text, limit);
    return out;
  }
  std::string describe() const override { return fmt::format("Prepend {}", prefix_); }

 private:
  std::string prefix_;
};

class ReplaceRule : public NormalizerRule {
 public:
  ReplaceRule(std::shared_ptr<const Splitter> matches, std::string content, std::string description)
      : matches_(std::move(matches)), content_(std::move(content)), description_(std::move(description)) {}
  std::string apply(std::string_view text, std::size_t limit) const override {
    std::string out;
    for (const auto& cut : matches_->split(text)) {
      grow(out, cut.is_match ? std::string_view(content_) : text.substr(cut.begin, cut.end - cut.begin), limit);
    }
    return out;
  }
  bool keeps_begin() const override { return !content_.empty(); }
  std::string describe() const override { return fmt::format("Replace {} {}", description_, content_); }

 private:
  std::shared_ptr<const Splitter> matches_;
  std::string content_;
  std::string description_;
};

class StripRule : public NormalizerRule {
 public:
  StripRule(bool left, bool right) : left_(left), right_(right) {}
  std::string apply(std::string_view text, std::size_t) const override {
    std::size_t begin = text.size();
    std::size_t end = 0;
    for (std::size_t at = 0; at < text.size();) {
      const auto [character, length] = unicode::decode_valid(text.data() + at);
      const auto next = at + static_cast<std::size_t>(length);
      if (!unicode::is_space(character)) {
        begin = std::min(begin, at);
        end = next;
      }
      at = next;
    }
    if (!left_) begin = 0;
    if (!right_) end = text.size();
    return begin < end ? std::string(text.substr(begin, end - begin)) : std::string();
  }
  bool keeps_ascii() const override { return !left_ && !right_; }
  bool keeps_begin() const override { return !left_; }
  std::string describe() const override { return fmt::format("Strip {} {}", left_, right_); }

 private:
  bool left_;
  bool right_;
};

class StripAccentsRule : public NormalizerRule {
 public:
  std::string apply(std::string_view text, std::size_t) const override {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const auto [character, length] = unicode::decode_valid(text.data() + at);
      if (!is_mark_of_unicode_9(character)) out.append(text.substr(at, static_cast<std::size_t>(length)));
      at += static_cast<std::size_t>(length);
    }
    return out;
  }
  bool keeps_ascii() const override { return true; }
  bool keeps_begin() const override { return false; }
  std::string describe() const override { return "StripAccents"; }
};

}  // namespace

void NormalizerRule::grow(std::string& out, std::string_view more, std::size_t limit) {
  if (out.size() + more.size() > limit) {
    throw DataError(fmt::format("the normalizer makes more than {} bytes of one text", limit),
                    {.remedy = "use a normalizer that does not make text many times longer"});
  }
  out += more;
}

NormalizerRulePtr make_prepend(std::string prefix) {
  return std::make_shared<PrependRule>(std::move(prefix));
}

NormalizerRulePtr make_replace(std::shared_ptr<const Splitter> matches, std::string content, std::string description) {
  return std::make_shared<ReplaceRule>(std::move(matches), std::move(content), std::move(description));
}

NormalizerRulePtr make_strip(bool left, bool right) {
  return std::make_shared<StripRule>(left, right);
}

NormalizerRulePtr make_strip_accents() {
  return std::make_shared<StripAccentsRule>();
}

}  // namespace orthant
