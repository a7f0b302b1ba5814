// The regular expressions of GPT-2 and of Llama 3 (also Qwen 2) written out by hand: ten times faster than an engine
// for regular expressions, which is the oracle of its test. Each cuts all of a text into words, without gaps.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

#include "orthant/text/splitter.h"
#include "orthant/text/unicode.h"

namespace orthant {

// Immutable, safe from several threads.
class WordSplitter : public Splitter {
 public:
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  static WordSplitter gpt2();
  // The splitter of a regular expression, by its text; nothing for one that is not known.
  static std::optional<WordSplitter> of_regex(std::string_view regex);

  // End of the word that begins at `at` < text.size().
  std::size_t next(std::string_view text, std::size_t at) const {
    return max_digits_ == 0 ? next_gpt2(text, at) : next_llama3(text, at);
  }
  std::vector<Cut> split(std::string_view text) const override;

 private:
  struct Seen {
    unicode::Kind kind;
    std::size_t length;
  };

  explicit WordSplitter(int max_digits);
  Seen see(const char* at) const;
  std::size_t run(std::string_view text, std::size_t at, unicode::Kind kind) const;
  std::size_t run_of_spaces(std::string_view text, std::size_t at, bool newlines) const;
  std::size_t next_gpt2(std::string_view text, std::size_t at) const;
  std::size_t next_llama3(std::string_view text, std::size_t at) const;
  std::size_t run_of_others(std::string_view text, std::size_t at) const;

  const unicode::KindTable* kinds_;
  int max_digits_;  // of a number, in Llama 3's rule; 0: GPT-2's rule
};

inline constexpr std::string_view kGpt2Regex =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kQwen2Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

}  // namespace orthant
