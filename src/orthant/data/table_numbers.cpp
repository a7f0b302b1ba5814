#include "orthant/data/table_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "orthant/text/table_reader.h"

namespace orthant {
namespace {

constexpr double kLargest = 1e100;
constexpr double kSmallestScale = 1e-100;

std::string_view without_blanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const auto begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

bool equal_in_any_case(std::string_view text, std::string_view lower) {
  return std::ranges::equal(text, lower, [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + 32 : a) == b; });
}

}  // namespace

bool is_missing_number(std::string_view text) {
  constexpr std::array<std::string_view, 7> kWords = {"na", "n/a", "nan", "null", "none", "#n/a", "<na>"};
  const auto word = without_blanks(text);
  return word.empty() || std::ranges::any_of(kWords, [&](auto missing) { return equal_in_any_case(word, missing); });
}

std::optional<double> parse_table_number(std::string_view text) {
  const auto word = without_blanks(text);
  if (equal_in_any_case(word, "true")) return 1.0;
  if (equal_in_any_case(word, "false")) return 0.0;
  const auto value = parse_number(word);
  return value && std::abs(*value) <= kLargest ? value : std::nullopt;
}

std::optional<NumberPreprocessing> fit_column(std::span<const double> numbers, std::int64_t columns,
                                              std::int64_t column, std::span<const std::int64_t> part) {
  // Deviations from the first number: a column of one value then has a spread of exactly zero.
  double first = std::numeric_limits<double>::quiet_NaN();
  const auto number = [&](std::int64_t row) { return numbers[static_cast<std::size_t>(row * columns + column)]; };
  double sum = 0;
  double count = 0;
  for (const auto row : part) {
    const double value = number(row);
    if (std::isnan(value)) continue;
    if (count == 0) first = value;
    sum += value - first;
    count += 1;
  }
  if (count == 0) return std::nullopt;
  const double mean = first + sum / count;
  const double shift = sum / count;
  double squares = 0;
  for (const auto row : part) {
    const double value = number(row);
    if (!std::isnan(value)) squares += (value - first - shift) * (value - first - shift);
  }
  const double scale = std::sqrt(squares / count);
  return NumberPreprocessing{.column = {}, .mean = mean, .scale = scale > kSmallestScale ? scale : 1.0};
}

}  // namespace orthant
