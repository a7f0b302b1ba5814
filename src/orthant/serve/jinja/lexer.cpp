#include "orthant/serve/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "orthant/base/error.h"
#include "orthant/serve/jinja/python_text.h"
#include "orthant/text/utf8.h"

namespace orthant::jinja {
namespace {

constexpr std::size_t kLongestTemplate = std::size_t{1} << 20;
constexpr std::array<std::string_view, 6> kLongSigns = {"==", "!=", "<=", ">=", "//", "**"};

bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// One kind of line break, and none at the end.
std::string with_plain_lines(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view text, const std::string& source) : text_(with_plain_lines(text)), source_(source) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) data();
    add(Token::Kind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message, std::string remedy = {}) const {
    fail_template(source_, line_, message, std::move(remedy));
  }

  void add(Token::Kind kind, std::string value = {}) { tokens_.push_back({kind, std::move(value), line_}); }

  bool sees(std::string_view what) const { return std::string_view(text_).substr(at_).starts_with(what); }

  void advance(std::size_t count) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(at_ + count), '\n'));
    line_starts_ = count > 0 ? text_[at_ + count - 1] == '\n' : line_starts_;
    at_ += count;
  }

  // Where the next {{, {% or {# is; else the end.
  std::size_t next_tag() const {
    auto at = text_.find('{', at_);
    while (at != std::string::npos &&
           (at + 1 == text_.size() || std::string_view("{%#").find(text_[at + 1]) == std::string_view::npos)) {
      at = text_.find('{', at + 1);
    }
    return at == std::string::npos ? text_.size() : at;
  }

  // Text up to the next tag, then the tag.
  void data() {
    const auto tag = next_tag();
    auto text = std::string_view(text_).substr(at_, tag - at_);
    const auto whole = text.size();
    if (tag == text_.size()) {
      add_data(text);
      return advance(whole);
    }
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (sign == '-') {
      text = strip(text, Ends::right);
    } else if (sign != '+' && text_[tag + 1] != '{') {
      const auto line = text.rfind('\n') == std::string_view::npos ? 0 : text.rfind('\n') + 1;
      if ((line > 0 || line_starts_) && strip(text.substr(line), Ends::both).empty()) text = text.substr(0, line);
    }
    add_data(text);
    advance(whole);
    const char kind = text_[at_ + 1];
    const bool signed_tag = sign == '-' || (sign == '+' && kind != '{');
    if (kind == '#') return comment();
    if (kind == '%' && raw(signed_tag)) return;
    add(kind == '{' ? Token::Kind::print_begin : Token::Kind::block_begin);
    advance(signed_tag ? 3 : 2);
    words(kind == '{' ? "}}" : "%}", kind == '{' ? Token::Kind::print_end : Token::Kind::block_end);
  }

  void add_data(std::string_view text) {
    if (!text.empty()) add(Token::Kind::data, std::string(text));
  }

  void comment() {
    const auto end = text_.find("#}", at_ + 2);
    if (end == std::string::npos) fail("a comment has no end", "close it with #}");
    const char sign = text_[end - 1];
    advance(end + 2 - at_);
    after_tag(sign, /*block=*/true);
  }

  // {% raw %} ... {% endraw %}
  bool raw(bool signed_tag) {
    auto at = at_ + (signed_tag ? 3 : 2);
    const auto word = [&](std::string_view name) {
      while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n' || text_[at] == '\t')) ++at;
      if (text_.compare(at, name.size(), name) != 0) return false;
      at += name.size();
      while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\n' || text_[at] == '\t')) ++at;
      if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
      if (text_.compare(at, 2, "%}") != 0) return false;
      at += 2;
      return true;
    };
    if (!word("raw")) return false;
    advance(at - at_);
    after_tag(text_[at_ - 3], /*block=*/true);
    for (auto open = text_.find("{%", at_); open != std::string::npos; open = text_.find("{%", open + 2)) {
      at = open + 2;
      const bool strips = at < text_.size() && text_[at] == '-';
      if (at < text_.size() && (strips || text_[at] == '+')) ++at;
      if (!word("endraw")) continue;
      const auto text = std::string_view(text_).substr(at_, open - at_);
      add_data(strips ? strip(text, Ends::right) : text);
      advance(at - at_);
      after_tag(text_[at_ - 3], /*block=*/true);
      return true;
    }
    fail("{% raw %} has no end", "close it with {% endraw %}");
  }

  // What white space goes after a tag that ended with this sign.
  void after_tag(char sign, bool block) {
    if (sign == '-') {
      const auto rest = std::string_view(text_).substr(at_);
      advance(rest.size() - strip(rest, Ends::left).size());
    } else if (block && sign != '+' && sees("\n")) {
      advance(1);
    }
  }

  // The words of a tag up to `close`.
  void words(std::string_view close, Token::Kind end) {
    std::string open;  // brackets
    for (;;) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) advance(1);
      if (at_ == text_.size()) fail("a tag has no end", fmt::format("close it with {}", close));
      const char sign = text_[at_];
      const bool with_sign =
          (sign == '-' || (sign == '+' && close == "%}")) && std::string_view(text_).substr(at_ + 1).starts_with(close);
      if (open.empty() && (sees(close) || with_sign)) {
        add(end);
        advance(with_sign ? 3 : 2);
        return after_tag(with_sign ? sign : ' ', close == "%}");
      }
      word(open);
    }
  }

  void word(std::string& open) {
    const char c = text_[at_];
    if (is_name_begin(c)) {
      const auto begin = at_;
      while (at_ < text_.size() && (is_name_begin(text_[at_]) || is_digit(text_[at_]))) ++at_;
      return add(Token::Kind::name, text_.substr(begin, at_ - begin));
    }
    if (is_digit(c)) return number();
    if (c == '\'' || c == '"') return quoted(c);
    for (const auto sign : kLongSigns) {
      if (!sees(sign)) continue;
      add(Token::Kind::sign, std::string(sign));
      return advance(2);
    }
    if (std::string_view("+-*/%~|.,:()[]{}<>=").find(c) == std::string_view::npos) {
      fail(fmt::format("unexpected character '{}'", characters_of(std::string_view(text_).substr(at_)).front()));
    }
    if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (!open.ends_with(c)) fail(fmt::format("'{}' closes nothing", c));
      open.pop_back();
    }
    add(Token::Kind::sign, std::string(1, c));
    advance(1);
  }

  void number() {
    const auto begin = at_;
    const auto digits = [&] {
      while (at_ < text_.size() && (is_digit(text_[at_]) || text_[at_] == '_')) ++at_;
    };
    digits();
    bool real = false;
    if (at_ + 1 < text_.size() && text_[at_] == '.' && is_digit(text_[at_ + 1])) {
      real = true;
      ++at_;
      digits();
    }
    if (at_ + 1 < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      const auto after = at_ + (text_[at_ + 1] == '+' || text_[at_ + 1] == '-' ? 2u : 1u);
      if (after < text_.size() && is_digit(text_[after])) {
        real = true;
        at_ = after;
        digits();
      }
    }
    auto value = text_.substr(begin, at_ - begin);
    std::erase(value, '_');
    if (value.size() > 18 && !real) fail(fmt::format("the number {} is too large", value));
    add(real ? Token::Kind::real : Token::Kind::integer, std::move(value));
  }

  void quoted(char quote) {
    std::string value;
    const int begin = line_;
    for (auto at = at_ + 1; at < text_.size(); ++at) {
      if (text_[at] == quote) {
        tokens_.push_back({Token::Kind::text, std::move(value), begin});
        return advance(at + 1 - at_);
      }
      if (text_[at] != '\\') {
        value += text_[at];
      } else if (++at < text_.size()) {
        escape(at, value);
      }
    }
    fail("a text has no end", fmt::format("close it with {}", quote));
  }

  // As unicode-escape of Python; `at` is on the character after the backslash and ends on the last one taken.
  void escape(std::size_t& at, std::string& value) {
    constexpr std::string_view kLetters = "nrtbfav\\'\"";
    constexpr std::string_view kMeanings = "\n\r\t\b\f\a\v\\'\"";
    const char c = text_[at];
    if (const auto found = kLetters.find(c); found != std::string_view::npos) {
      value += kMeanings[found];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      add_code(text_.substr(at + 1, count), count, 16, value);
      at += count;
    } else if (c >= '0' && c <= '7') {
      std::size_t count = 1;
      while (count < 3 && at + count < text_.size() && text_[at + count] >= '0' && text_[at + count] <= '7') ++count;
      add_code(text_.substr(at, count), count, 8, value);
      at += count - 1;
    } else if (c == 'N') {
      fail("\\N{...} in a text", "write the character itself");
    } else if (c != '\n') {
      value += '\\';
      value += c;
    }
  }

  void add_code(const std::string& digits, std::size_t count, int base, std::string& value) {
    std::size_t used = 0;
    unsigned long code = 0x110000;
    try {
      if (digits.size() == count) code = std::stoul(digits, &used, base);
    } catch (const std::exception&) {
      used = 0;
    }
    if (used != count || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
      fail(fmt::format("\\{}{} is no character", base == 16 ? "x" : "", digits));
    }
    const auto low = [&](unsigned long bits) { value += static_cast<char>(0x80 | (bits & 0x3f)); };
    if (code < 0x80) {
      value += static_cast<char>(code);
    } else if (code < 0x800) {
      value += static_cast<char>(0xc0 | code >> 6);
      low(code);
    } else if (code < 0x10000) {
      value += static_cast<char>(0xe0 | code >> 12);
      low(code >> 6);
      low(code);
    } else {
      value += static_cast<char>(0xf0 | code >> 18);
      low(code >> 12);
      low(code >> 6);
      low(code);
    }
  }

  std::string text_;
  const std::string& source_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;
};

}  // namespace

void fail_template(const std::string& source, int line, const std::string& message, std::string remedy) {
  throw DataError(fmt::format("{}:{}: {}", source, line, message), {.remedy = std::move(remedy)});
}

std::vector<Token> cut_template(std::string_view text, const std::string& source) {
  if (text.size() > kLongestTemplate) {
    throw DataError(fmt::format("{} has {} bytes", source, text.size()),
                    {.remedy = fmt::format("chat templates have at most {}", kLongestTemplate)});
  }
  if (const auto bad = find_invalid_utf8(text)) {
    throw DataError(fmt::format("{}: {}", source, describe_invalid_utf8(text, *bad)), {.remedy = "save it as UTF-8"});
  }
  return Lexer(text, source).run();
}

}  // namespace orthant::jinja
