// A chat template cut into tokens: text that is printed as it is, and the words of its tags. White space around tags
// goes as transformers has it: the first line break after a block tag, blanks of a line before one, and all of it where
// the tag has a minus.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orthant::jinja {

struct Token {
  enum class Kind { data, block_begin, block_end, print_begin, print_end, name, text, integer, real, sign, end };
  Kind kind = Kind::end;
  std::string value = {};  // of a text: what it says, escapes replaced
  int line = 0;

  bool is(Kind wanted, std::string_view word) const { return kind == wanted && value == word; }
  bool is_sign(std::string_view word) const { return is(Kind::sign, word); }
  bool is_name(std::string_view word) const { return is(Kind::name, word); }
};

// The last token is `end`. DataError with `source` and line.
std::vector<Token> cut_template(std::string_view text, const std::string& source);

// "FILE:LINE: message"
[[noreturn]] void fail_template(const std::string& source, int line, const std::string& message,
                                std::string remedy = {});

}  // namespace orthant::jinja
