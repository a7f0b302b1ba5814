// Unicode normal forms and lower case as rules of a normalizer.
#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>

#include "orthant/text/bert_characters.h"
#include "orthant/text/normalizer_rule.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

struct Range {
  char32_t first = 0;
  char32_t last = 0;
};

// Characters that decompose, compose or have a combining class since Unicode 10, or were changed to.
constexpr Range kNewer[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x10781, 0x10785},
    {0x10787, 0x107b0}, {0x107b2, 0x107ba}, {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff},
    {0x10f46, 0x10f50}, {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193d, 0x1193e}, {0x11943, 0x11943},
    {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
    {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x16ff0, 0x16ff1}, {0x1e030, 0x1e06d},
    {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
    {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

// To Unicode 9 these are characters without any properties, so that the text on both sides is normalised by itself.
bool is_newer(char32_t character) {
  const auto contains = [character](const auto& ranges) {
    const auto after = std::upper_bound(std::begin(ranges), std::end(ranges), character,
                                        [](char32_t value, const auto& range) { return value < range.first; });
    return after != std::begin(ranges) && character <= std::prev(after)->last;
  };
  return contains(kNewer) || contains(unicode::category_updates());
}

struct Free {
  void operator()(utf8proc_uint8_t* memory) const { std::free(memory); }
};

std::string map_text(std::string_view text, NormalForm form) {
  if (text.empty()) return {};
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) | (compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* made = nullptr;
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &made, options);
  const std::unique_ptr<utf8proc_uint8_t, Free> owned(made);
  if (length < 0) throw std::bad_alloc();  // the text is well-formed, so that only memory can be short
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(length)};
}

std::string normal_form(std::string_view text, NormalForm form) {
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [character, length] = unicode::decode_valid(text.data() + at);
    const auto end = at + static_cast<std::size_t>(length);
    if (character >= 0x80 && is_newer(character)) {
      out += map_text(text.substr(done, at - done), form);
      out += text.substr(at, end - at);
      done = end;
    }
    at = end;
  }
  return out + map_text(text.substr(done), form);
}

class NormalFormRule : public NormalizerRule {
 public:
  explicit NormalFormRule(NormalForm form) : form_(form) {}
  std::string apply(std::string_view text, std::size_t limit) const override {
    std::string out;
    grow(out, normal_form(text, form_), limit);
    return out;
  }
  bool keeps_ascii() const override { return true; }
  std::string describe() const override { return std::to_string(static_cast<int>(form_)); }

 private:
  NormalForm form_;
};

class LowercaseRule : public NormalizerRule {
 public:
  std::string apply(std::string_view text, std::size_t limit) const override {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const auto [character, length] = unicode::decode_valid(text.data() + at);
      at += static_cast<std::size_t>(length);
      if (character == 0x130) {
        grow(out, "i\xcc\x87", limit);  // the one letter whose small form is two characters
      } else {
        unicode::append_utf8(out, BertCharacters::lower(character));
      }
    }
    return out;
  }
  std::string describe() const override { return "4"; }
};

}  // namespace

NormalizerRulePtr make_normal_form(NormalForm form) {
  return std::make_shared<NormalFormRule>(form);
}

NormalizerRulePtr make_lowercase() {
  return std::make_shared<LowercaseRule>();
}

}  // namespace orthant
