// What `orthant generate` is asked: prompts of the command line or of a file, and how to answer them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/generate/questions.h"

namespace orthant::cli {

class OptionParser;

// The options of a request, as commands name them.
struct SamplingOptions {
  SamplingParams params = {.max_tokens = 128};
  std::int64_t top_k = 0;
  std::int64_t seed = 0;
  std::int64_t logprobs = -1;
  std::vector<std::string> stop;
  std::int64_t answers = 1;  // to each prompt, by seeds that follow each other

  SamplingParams checked() const;  // ConfigError
};
void add_sampling_options(OptionParser& app, SamplingOptions& options);

// A prompt as it was given: a text, or token ids.
struct PromptGiven {
  std::optional<std::string> text;
  std::vector<std::int64_t> ids;
  std::optional<std::int64_t> max_tokens = {};  // nothing: that of the command line
};

// A line of a file that is no prompt.
struct BadLine {
  std::int64_t line = 0;
  std::string error;
};

struct PromptFile {
  std::vector<PromptGiven> prompts;
  std::vector<std::int64_t> lines;  // of each, counted from 1
  std::vector<BadLine> bad;
};

// Lines of JSON: a text, {"prompt": text} or {"token_ids": [...]}, perhaps with "max_tokens"; empty lines are passed
// over. DataError for a file that cannot be read or has no prompt.
PromptFile read_prompts(const std::string& path);

}  // namespace orthant::cli
