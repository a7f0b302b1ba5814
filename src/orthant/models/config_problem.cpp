#include "orthant/models/config_problem.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "orthant/base/error.h"

namespace orthant {
namespace {

// The nearest divisors of `value` at or below, and above `wanted`; no larger one when `wanted` exceeds them all.
std::string nearest_divisors(std::int64_t value, std::int64_t wanted) {
  std::int64_t below = 1;
  std::int64_t above = value;
  for (std::int64_t low = 1; low * low <= value; ++low) {
    if (value % low != 0) continue;
    for (const auto divisor : {low, value / low}) {
      if (divisor <= wanted && divisor > below) below = divisor;
      if (divisor > wanted && divisor < above) above = divisor;
    }
  }
  return above > wanted ? fmt::format("{} or {}", below, above) : fmt::format("{}", below);
}

std::string nearest_multiples(std::int64_t divisor, std::int64_t wanted) {
  const std::int64_t below = wanted / divisor * divisor;
  return below > 0 ? fmt::format("{} or {}", below, below + divisor) : fmt::format("{}", divisor);
}

}  // namespace

void refuse(const Problem& problem, const JsonReader& reader) {
  if (problem) reader.fail(problem->key, problem->message, problem->remedy);
}

void refuse(const Problem& problem, std::string_view owner) {
  if (!problem) return;
  throw ConfigError(fmt::format("{}.{}: {}", owner, problem->key, problem->message), {.remedy = problem->remedy});
}

Problem check_size(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high) {
  if (value >= low && value <= high) return std::nullopt;
  return ConfigProblem{std::string(key), fmt::format("{} is not between {} and {}", value, low, high),
                       fmt::format("set {} to {} or {}", key, value < low ? low : high, value < low ? "more" : "less")};
}

Problem check_probability(std::string_view key, double value) {
  if (value >= 0 && value < 1) return std::nullopt;
  return ConfigProblem{std::string(key), fmt::format("{} is not a probability below 1", value),
                       fmt::format("set {} to 0 (off) or more, and below 1", key)};
}

Problem check_positive(std::string_view key, double value) {
  if (value > 0 && std::isfinite(value)) return std::nullopt;
  return ConfigProblem{std::string(key), fmt::format("{} is not a positive number", value),
                       fmt::format("set {} above 0", key)};
}

Problem check_not_negative(std::string_view key, double value) {
  if (value == 0) return std::nullopt;
  auto problem = check_positive(key, value);
  if (problem) problem->message = fmt::format("{} is neither 0 nor a positive number", value);
  return problem;
}

Problem check_divides(Sized divisor, Sized value, Remedy remedy) {
  if (value.value % divisor.value == 0) return std::nullopt;
  std::string text = fmt::format("set {} to {}", divisor.key, nearest_divisors(value.value, divisor.value));
  if (remedy == Remedy::change_either) {
    text += fmt::format(", or {} to {}", value.key, nearest_multiples(divisor.value, value.value));
  }
  return ConfigProblem{std::string(divisor.key),
                       fmt::format("{} does not divide {} {}", divisor.value, value.key, value.value), text};
}

void refuse_work(const WorkSize& work, std::int64_t max_sequence, std::string_view tower) {
  const auto refuse = [&](const std::string& message, std::string remedy) {
    throw ConfigError(fmt::format("{}{}{}", tower, tower.empty() ? "" : ": ", message), {.remedy = std::move(remedy)});
  };
  if (work.rows < 1 || work.rows > kMaxEntries) {
    refuse(fmt::format("{} rows in a microbatch; it must be 1 to {}", work.rows, kMaxEntries), "use 1 or more");
  }
  if (work.sequence < 1 || work.sequence > max_sequence) {
    const auto found = fmt::format("a sequence of {}", work.sequence);
    refuse(work.sequence < 1 ? found + " tokens; it must be at least 1"
                             : fmt::format("{} is longer than the model's {} positions", found, max_sequence),
           fmt::format(
               "use 1 to {} ({}; --seq of orthant plan and estimate), or raise max_position_embeddings", max_sequence,
               tower == "secondary" && work.secondary_sequence > 0 ? "data.secondary_length" : "data.sequence_length"));
  }
  switch (work.compute) {
    case DType::float64:
    case DType::float32:
    case DType::bfloat16:
    case DType::float16:
      return;
    default:
      break;
  }
  refuse(fmt::format("compute dtype {} is not a floating one", dtype_name(work.compute)),
         "use one of float64, float32, bfloat16, float16");
}

}  // namespace orthant
