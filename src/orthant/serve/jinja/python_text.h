// Texts as Python's str sees them: characters, white space, lines, cases and how values are printed. All texts are
// UTF-8. Local.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orthant::jinja {

std::vector<std::string_view> characters_of(std::string_view text);
std::int64_t num_characters(std::string_view text);
// The character at a place below num_characters().
std::string_view character_at(std::string_view text, std::int64_t place);

enum class Ends { both, left, right };
// Without characters at the ends that are white space, or, with `characters`, among those.
std::string_view strip(std::string_view text, Ends ends, const std::string* characters = nullptr);

// At runs of white space, or at every `separator`; at most `most` cuts, negative: all. From the right with `reverse`.
std::vector<std::string_view> split(std::string_view text, const std::string* separator, std::int64_t most,
                                    bool reverse);
std::vector<std::string_view> split_lines(std::string_view text);
std::int64_t count_of(std::string_view text, std::string_view part);
std::string replace_parts(std::string_view text, std::string_view from, std::string_view to, std::int64_t most);

// Cases of ASCII, Latin-1, Greek and Cyrillic letters; others stay.
std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);
std::string title(std::string_view text);  // every word, which begins after what is no letter

// repr() of a str and of a float.
std::string quote_text(std::string_view text);
std::string print_real(double value);

// Where a slice of `length` items begins and how many steps it takes.
struct Slice {
  std::int64_t begin = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;
};
Slice slice_of(std::int64_t length, const std::int64_t* begin, const std::int64_t* end, std::int64_t step);

}  // namespace orthant::jinja
