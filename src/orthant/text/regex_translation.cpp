// Oniguruma's dialect to PCRE2's. Letter for letter besides: \s is the property White_Space, \w counts marks, \p{..}
// gains the characters that PCRE2's older Unicode tables lack. A list of what is known to mean the same: anything else
// is refused.
#include <fmt/format.h>

#include <array>
#include <cctype>
#include <initializer_list>

#include "orthant/base/error.h"
#include "orthant/text/regex_splitter.h"
#include "orthant/text/unicode.h"

namespace orthant {
namespace {

constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
// What \w has besides letters, marks, decimal digits, letter numbers and connectors.
constexpr std::string_view kMoreWords =
    R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::array<std::string_view, 30> kCategories = {"Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd",
                                                          "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "Sm",
                                                          "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co"};

// Ranges of later Unicode versions that belong to a category ("Lu") or a group of them ("L").
std::string later_characters(std::string_view name) {
  std::string ranges;
  for (const auto& range : unicode::category_updates()) {
    if (!kCategories[static_cast<std::size_t>(range.category)].starts_with(name)) continue;
    ranges += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<std::uint32_t>(range.first),
                          static_cast<std::uint32_t>(range.last));
  }
  return ranges;
}

bool is_category(std::string_view name) {
  for (const auto known : kCategories) {
    if (name == known || name == known.substr(0, 1)) return true;
  }
  return false;
}

class Translator {
 public:
  Translator(std::string_view regex, const std::string& source) : regex_(regex), source_(source) {}

  std::string translate() {
    while (at_ < regex_.size()) {
      const char letter = regex_[at_];
      if (letter == '\\') {
        escape();
      } else if (in_class_) {
        class_letter(letter);
      } else {
        plain_letter(letter);
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    throw DataError(
        fmt::format("{}: the regular expression {} uses {} at byte {}", source_, regex_, what, at_),
        {.remedy = "write it with classes, groups, (?i:..), look-ahead and look-behind, \\s \\d \\w \\p{..}"});
  }

  void copy(std::size_t length) {
    out_ += regex_.substr(at_, length);
    at_ += length;
  }

  // Characters of a set: as they are inside of a class, else a class of their own.
  void put_set(std::string_view set, bool negated) {
    if (in_class_) {
      out_ += set;
    } else {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", set);
    }
  }

  void escape() {
    if (at_ + 1 >= regex_.size()) refuse("a backslash at its end");
    const char letter = regex_[at_ + 1];
    if (letter == 's' || letter == 'S') {
      // PCRE2 counts U+180E as white space; Unicode has not since version 6.3.
      put_set(letter == 'S' && in_class_ ? std::string_view(R"(\S\x{180e})") : kSpaces, letter == 'S');
      at_ += 2;
    } else if (letter == 'p' || letter == 'P') {
      property(letter == 'P');
    } else if (letter == 'd' || letter == 'D') {
      categories({"Nd"}, "", letter == 'D');
      at_ += 2;
    } else if (letter == 'w' || letter == 'W') {
      categories({"L", "M", "Nd", "Nl", "Pc"}, kMoreWords, letter == 'W');
      at_ += 2;
    } else if (std::string_view("rntfxAz").find(letter) != std::string_view::npos) {
      if (letter == 'x' && regex_.substr(at_ + 2, 1) != "{") refuse("\\x without braces");
      copy(2);
    } else if (letter == 'u') {
      const auto digits = regex_.substr(at_ + 2, 4);
      if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
        refuse("\\u without four digits");
      }
      out_ += fmt::format("\\x{{{}}}", digits);
      at_ += 6;
    } else if (static_cast<unsigned char>(letter) < 0x80 && !std::isalnum(static_cast<unsigned char>(letter))) {
      copy(2);
    } else {
      refuse(fmt::format("\\{}", letter));
    }
  }

  void property(bool negated) {
    const auto end = regex_.find('}', at_);
    if (regex_.substr(at_ + 2, 1) != "{" || end == std::string_view::npos) refuse("\\p without braces");
    auto name = regex_.substr(at_ + 3, end - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (is_category(name)) {
      categories({name}, "", negated);
    } else if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_") ==
               std::string_view::npos) {
      out_ += fmt::format("\\{}{{{}}}", negated ? 'P' : 'p', name);  // a script such as Han
    } else {
      refuse(regex_.substr(at_, end + 1 - at_));
    }
    at_ = end + 1;
  }

  void categories(std::initializer_list<std::string_view> names, std::string_view more, bool negated) {
    if (in_class_ && negated) refuse("a negated property inside of a class");
    std::string set(more);
    for (const auto name : names) set += fmt::format("\\p{{{}}}{}", name, later_characters(name));
    put_set(set, negated);
  }

  void class_letter(char letter) {
    if (letter == '[') refuse("a class inside of a class");
    if (regex_.substr(at_, 2) == "&&") refuse("&& inside of a class");
    if (letter == ']' && at_ > class_begin_) in_class_ = false;
    copy(1);
  }

  void plain_letter(char letter) {
    if (letter == '[') {
      copy(regex_.substr(at_, 2) == "[^" ? 2 : 1);
      in_class_ = true;
      class_begin_ = at_;
      if (regex_.substr(at_, 1) == "]") refuse("a class that begins with ]");
    } else if (letter == '(' && regex_.substr(at_, 2) == "(?") {
      group();
    } else if (letter == '(' && regex_.substr(at_, 2) == "(*") {
      refuse("(*");
    } else if (regex_.substr(at_, 2) == "}+" || regex_.substr(at_, 2) == "{,") {
      refuse(regex_.substr(at_, 2));
    } else {
      copy(1);
    }
  }

  void group() {
    for (const std::string_view known : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (regex_.substr(at_).starts_with(known)) return copy(known.size());
    }
    if (at_ == 0 && regex_.starts_with("(?i)")) return copy(4);
    refuse(regex_.substr(at_, 4));
  }

  std::string_view regex_;
  const std::string& source_;
  std::string out_;
  std::size_t at_ = 0;
  std::size_t class_begin_ = 0;
  bool in_class_ = false;
};

}  // namespace

std::string translate_regex(std::string_view regex, const std::string& source) {
  return Translator(regex, source).translate();
}

}  // namespace orthant
