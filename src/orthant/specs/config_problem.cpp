#include "orthant/specs/config_problem.h"

#include <fmt/format.h>

#include <cmath>

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

Problem check_divides(Sized divisor, Sized value, Remedy remedy) {
  if (value.value % divisor.value == 0) return std::nullopt;
  std::string text = fmt::format("set {} to {}", divisor.key, nearest_divisors(value.value, divisor.value));
  if (remedy == Remedy::change_either) {
    text += fmt::format(", or {} to {}", value.key, nearest_multiples(divisor.value, value.value));
  }
  return ConfigProblem{std::string(divisor.key),
                       fmt::format("{} does not divide {} {}", divisor.value, value.key, value.value), text};
}

Problem check_work(const WorkSize& work, std::int64_t max_sequence) {
  if (auto problem = check_entries("rows", work.rows)) return problem;
  if (auto problem = check_entries("sequence", work.sequence)) return problem;
  if (work.sequence > max_sequence) {
    return ConfigProblem{"sequence",
                         fmt::format("{} is longer than the model's {} positions", work.sequence, max_sequence),
                         fmt::format("set a sequence of at most {}, or raise max_position_embeddings", max_sequence)};
  }
  switch (work.compute) {
    case DType::float64:
    case DType::float32:
    case DType::bfloat16:
    case DType::float16:
      return std::nullopt;
    default:
      break;
  }
  return ConfigProblem{"compute", fmt::format("{} is not a floating dtype", dtype_name(work.compute)),
                       "use one of float64, float32, bfloat16, float16"};
}

}  // namespace orthant
