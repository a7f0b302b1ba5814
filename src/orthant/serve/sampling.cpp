#include "orthant/serve/sampling.h"

#include <fmt/format.h>

#include <cmath>
#include <string>
#include <string_view>

#include "orthant/base/error.h"

namespace orthant {
namespace {

void check_range(std::string_view name, double value, double low, double high, bool open_low = false) {
  if (std::isfinite(value) && value <= high && (open_low ? value > low : value >= low)) return;
  throw ConfigError(
      fmt::format("{} is {}", name, value),
      {.remedy = fmt::format("use {} {}{} {}", name, open_low ? "greater than " : "from ", low,
                             open_low ? fmt::format("and at most {}", high) : fmt::format("to {}", high))});
}

}  // namespace

void check(const SamplingParams& params) {
  constexpr double kHottest = 100;
  check_range("temperature", params.temperature, 0, kHottest);
  check_range("top_p", params.top_p, 0, 1, /*open_low=*/true);
  check_range("min_p", params.min_p, 0, 1);
  check_range("repetition_penalty", params.repetition_penalty, 0, kHottest, /*open_low=*/true);
  if (params.top_k < 0) {
    throw ConfigError(fmt::format("top_k is {}", params.top_k), {.remedy = "use 0 for all tokens, or a count"});
  }
  if (params.max_tokens < 1) {
    throw ConfigError(fmt::format("max_tokens is {}", params.max_tokens), {.remedy = "ask for at least one token"});
  }
  if (params.logprobs < -1 || params.logprobs > kMostLogprobs) {
    throw ConfigError(fmt::format("logprobs is {}", params.logprobs),
                      {.remedy = fmt::format("use a count from 0 to {}, or leave it out", kMostLogprobs)});
  }
}

}  // namespace orthant
