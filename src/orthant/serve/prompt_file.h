// Files of prompts: lines of JSON, each a text, {"prompt": text} or {"token_ids": [...]}, objects perhaps with
// "max_tokens"; empty lines are passed over.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace orthant {

// A prompt as it was given: a text, or token ids.
struct PromptGiven {
  std::optional<std::string> text;
  std::vector<std::int64_t> ids;
  std::optional<std::int64_t> max_tokens = {};  // nothing: that of the command line
};

// A line that is no prompt.
struct BadLine {
  std::int64_t line = 0;
  std::string error;
};

struct PromptFile {
  std::vector<PromptGiven> prompts;
  std::vector<std::int64_t> lines;  // of each, counted from 1
  std::vector<BadLine> bad;
};

// DataError for a file that cannot be read or has no prompt.
PromptFile read_prompts(const std::string& path);
// The same of what is open already; `source` names it in errors.
PromptFile read_prompts(std::istream& file, const std::string& source);

}  // namespace orthant
