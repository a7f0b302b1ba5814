// Cuts text by a regular expression of a tokenizer.json, with PCRE2. Those files mean Oniguruma's dialect: what it and
// PCRE2 read alike is taken, with white space and categories as Unicode 16 has them; the rest is refused by name.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "orthant/text/splitter.h"

namespace orthant {

// DataError that begins with `source` for an expression that is ill-formed or uses what the two dialects read apart.
// split() throws a DataError when the expression needs too many steps on a text.
std::unique_ptr<Splitter> make_regex_splitter(std::string_view regex, const std::string& source);

// The same expression for PCRE2. For tests.
std::string translate_regex(std::string_view regex, const std::string& source);

}  // namespace orthant
