#include "orthant/cli/generate_questions.h"

#include <fmt/format.h>

#include <limits>

#include "orthant/base/error.h"
#include "orthant/cli/option_parser.h"

namespace orthant::cli {
namespace {

constexpr std::int64_t kMostAnswers = 4096;

}  // namespace

SamplingParams SamplingOptions::checked() const {
  SamplingParams all = params;
  const auto within = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value >= least && value <= std::numeric_limits<int>::max()) return static_cast<int>(value);
    throw ConfigError(fmt::format("{} is {}", name, value), {.remedy = fmt::format("use {} or more", least)});
  };
  all.top_k = within("--top-k", top_k, 0);
  all.logprobs = within("--logprobs", logprobs, -1);
  all.seed = static_cast<std::uint64_t>(seed);
  if (answers < 1 || answers > kMostAnswers) {
    throw ConfigError(fmt::format("--n is {}", answers), {.remedy = fmt::format("use 1 to {}", kMostAnswers)});
  }
  for (const auto& text : stop) {
    if (text.empty()) throw ConfigError("--stop is empty", {.remedy = "give a text, or leave it out"});
  }
  check(all);
  return all;
}

void add_sampling_options(OptionParser& app, SamplingOptions& options) {
  app.add_option("--max-tokens", options.params.max_tokens, "tokens of an answer at most (default 128)");
  app.add_option("--temperature", options.params.temperature,
                 "1: as probable as the model says, smaller: safer, 0: always the most probable token (default 1)");
  app.add_option("--top-k", options.top_k, "draw from so many of the most probable tokens (default: from all)");
  app.add_option("--top-p", options.params.top_p,
                 "draw from the most probable tokens whose probabilities add up to it (default 1)");
  app.add_option("--min-p", options.params.min_p,
                 "draw from tokens at least this part as probable as the most probable one (default 0)");
  app.add_option("--repetition-penalty", options.params.repetition_penalty,
                 "above 1: tokens that prompt or answer have become less probable (default 1)");
  app.add_option("--stop", options.stop, "the answer ends before this text; may be given several times").take_all();
  app.add_option("--seed", options.seed, "equal seeds give equal answers, on any mesh (default 0)");
  app.add_option("--n", options.answers, "answers to each prompt, with seeds that follow each other (default 1)");
  app.add_option("--logprobs", options.logprobs,
                 "tell the log-probability of every token, and of so many of the most probable ones (with --json)");
}

}  // namespace orthant::cli
