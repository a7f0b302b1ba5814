// What `orthant generate` is asked: how to answer prompts.
#pragma once

#include <cstdint>
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

}  // namespace orthant::cli
