// What is wrong with one value of a model configuration. Rules are functions from values to a Problem, so that the same
// rule speaks with file, line and key when the configuration was read, and with the key alone when a program made it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "orthant/base/json_reader.h"
#include "orthant/models/work_size.h"

namespace orthant {

struct ConfigProblem {
  std::string key;
  std::string message;
  std::string remedy;
};

using Problem = std::optional<ConfigProblem>;

// Throw when there is a problem: of the document's kind, with the place of the key; or a ConfigError "<owner>.<key>:
// ...".
void refuse(const Problem& problem, const JsonReader& reader);
void refuse(const Problem& problem, std::string_view owner);

// Larger sizes are taken for a mistake. Within them, counts of parameters stay within 64 bits.
inline constexpr std::int64_t kMaxWidth = std::int64_t{1} << 22;          // channels, heads
inline constexpr std::int64_t kMaxEntries = (std::int64_t{1} << 31) - 1;  // vocabularies, positions, rows
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 10;

Problem check_size(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high);
inline Problem check_width(std::string_view key, std::int64_t value) {
  return check_size(key, value, 1, kMaxWidth);
}
inline Problem check_entries(std::string_view key, std::int64_t value) {
  return check_size(key, value, 1, kMaxEntries);
}
Problem check_probability(std::string_view key, double value);  // 0 <= value < 1
Problem check_positive(std::string_view key, double value);
Problem check_not_negative(std::string_view key, double value);

// value % divisor == 0; the remedy names the nearest multiples and, when it may change too, the nearest divisors.
struct Sized {
  std::string_view key;
  std::int64_t value = 0;
};
enum class Remedy { change_divisor, change_either };
Problem check_divides(Sized divisor, Sized value, Remedy remedy);

// ConfigError unless rows and sequence are at least 1, the sequence is within the positions that the model has, and the
// compute dtype is a floating one. `tower` names one of several models in the message.
void refuse_work(const WorkSize& work, std::int64_t max_sequence, std::string_view tower = "");

}  // namespace orthant
