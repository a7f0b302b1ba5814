#include "orthant/text/word_splitter.h"

#include <array>

namespace orthant {
namespace {

using unicode::Kind;

constexpr std::array<Kind, 128> kAscii = [] {
  std::array<Kind, 128> kinds = {};
  for (std::size_t c = 0; c < kinds.size(); ++c) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool number = c >= '0' && c <= '9';
    const bool space = c == ' ' || (c >= '\t' && c <= '\r');
    kinds[c] = letter ? Kind::letter : number ? Kind::number : space ? Kind::space : Kind::other;
  }
  return kinds;
}();

bool is_newline(char letter) {
  return letter == '\n' || letter == '\r';
}

char lower(char letter) {
  return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + ('a' - 'A')) : letter;
}

// Bytes of 's 't 're 've 'm 'll 'd at `at`, where an apostrophe is; 0 for none. U+017F is an s where case is ignored.
std::size_t contraction(std::string_view text, std::size_t at, bool ignore_case) {
  const auto letter = [&](std::size_t i) {
    if (at + i >= text.size()) return '\0';
    return ignore_case ? lower(text[at + i]) : text[at + i];
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  const char second = letter(2);
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) return 3;
  return ignore_case && text.substr(at + 1).starts_with("\xc5\xbf") ? 3 : 0;
}

}  // namespace

WordSplitter::WordSplitter(int max_digits) : kinds_(&unicode::KindTable::get()), max_digits_(max_digits) {}

WordSplitter WordSplitter::gpt2() {
  return WordSplitter(0);
}

std::optional<WordSplitter> WordSplitter::of_regex(std::string_view regex) {
  if (regex == kGpt2Regex) return gpt2();
  if (regex == kLlama3Regex) return WordSplitter(3);
  if (regex == kQwen2Regex) return WordSplitter(1);
  return std::nullopt;
}

inline WordSplitter::Seen WordSplitter::see(const char* at) const {
  const auto byte = static_cast<unsigned char>(*at);
  if (byte < 0x80) return {kAscii[byte], 1};
  const auto [character, length] = unicode::decode_valid(at);
  return {(*kinds_)[character], static_cast<std::size_t>(length)};
}

inline std::size_t WordSplitter::run(std::string_view text, std::size_t at, Kind kind) const {
  while (at < text.size()) {
    const auto seen = see(text.data() + at);
    if (seen.kind != kind) break;
    at += seen.length;
  }
  return at;
}

// White space up to the last newline, where that counts; else all but its last character when a word follows, which
// takes that along; a single one stands alone.
std::size_t WordSplitter::run_of_spaces(std::string_view text, std::size_t at, bool newlines) const {
  auto end = at;
  auto last = at;
  std::size_t newline_end = 0;
  while (end < text.size()) {
    const auto seen = see(text.data() + end);
    if (seen.kind != Kind::space) break;
    last = end;
    end += seen.length;
    if (is_newline(text[last])) newline_end = end;
  }
  if (newlines && newline_end > 0) return newline_end;
  return end == text.size() || last == at ? end : last;
}

std::size_t WordSplitter::next_gpt2(std::string_view text, std::size_t at) const {
  if (text[at] == '\'') {
    if (const auto length = contraction(text, at, false)) return at + length;
  }
  const auto first = see(text.data() + at);
  if (first.kind != Kind::space) return run(text, at + first.length, first.kind);
  if (text[at] == ' ' && at + 1 < text.size()) {
    const auto second = see(text.data() + at + 1);
    if (second.kind != Kind::space) return run(text, at + 1 + second.length, second.kind);
  }
  return run_of_spaces(text, at, false);
}

// What is neither letter, number nor white space, and the newlines after it.
std::size_t WordSplitter::run_of_others(std::string_view text, std::size_t at) const {
  at = run(text, at, Kind::other);
  while (at < text.size() && is_newline(text[at])) ++at;
  return at;
}

std::size_t WordSplitter::next_llama3(std::string_view text, std::size_t at) const {
  if (text[at] == '\'') {
    if (const auto length = contraction(text, at, true)) return at + length;
  }
  const auto first = see(text.data() + at);
  const auto after = at + first.length;
  if (first.kind == Kind::letter) return run(text, after, Kind::letter);
  if (first.kind == Kind::number) {
    auto end = after;
    for (int digits = 1; digits < max_digits_ && end < text.size(); ++digits) {
      const auto seen = see(text.data() + end);
      if (seen.kind != Kind::number) break;
      end += seen.length;
    }
    return end;
  }
  const auto second = after < text.size() ? see(text.data() + after) : Seen{Kind::space, 0};
  if (second.kind == Kind::letter && !is_newline(text[at])) return run(text, after + second.length, Kind::letter);
  if (first.kind == Kind::other) return run_of_others(text, after);
  if (second.kind == Kind::other && text[at] == ' ') return run_of_others(text, after + second.length);
  return run_of_spaces(text, at, true);
}

std::vector<Cut> WordSplitter::split(std::string_view text) const {
  std::vector<Cut> cuts;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = next(text, at);
    cuts.push_back({at, end, true});
    at = end;
  }
  return cuts;
}

}  // namespace orthant
