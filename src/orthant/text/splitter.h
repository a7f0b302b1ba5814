// Cuts text into stretches that match a pattern and those between them; a behaviour says what becomes of the matches.
// Text is well-formed UTF-8.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// Bytes [begin, end) of a text.
struct Cut {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool is_match = false;
};

// Immutable, safe from several threads.
class Splitter {
 public:
  virtual ~Splitter() = default;
  // All of `text` in order, without overlap or gap; a cut may be empty.
  virtual std::vector<Cut> split(std::string_view text) const = 0;
};

enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

// The stretches that are left, none of them empty.
std::vector<Cut> apply_behavior(const std::vector<Cut>& cuts, SplitBehavior behavior);

// Every occurrence of a text, left to right. An empty one matches nothing.
std::unique_ptr<Splitter> make_literal_splitter(std::string literal);
// Every character for which the predicate holds, alone.
std::unique_ptr<Splitter> make_character_splitter(std::function<bool(char32_t)> predicate);
// Runs of word characters and runs of other signs; the white space between them is what matches.
std::unique_ptr<Splitter> make_word_and_sign_splitter();

}  // namespace orthant
