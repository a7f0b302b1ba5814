#include "orthant/base/human.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::array<std::string_view, 7> kByteSuffixes = {" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"};
constexpr std::array<std::string_view, 5> kCountSuffixes = {"", "K", "M", "B", "T"};

// At most one decimal, none when it would be zero.
std::string short_decimal(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

std::string scaled(std::int64_t amount, double base, std::span<const std::string_view> suffixes) {
  double value = static_cast<double>(amount);
  std::size_t scale = 0;
  // Compared after rounding, so that 1023.96 KiB reads 1 MiB and never 1024 KiB.
  while (scale + 1 < suffixes.size() && std::round(std::abs(value) * 10) / 10 >= base) {
    value /= base;
    ++scale;
  }
  return short_decimal(value) + std::string(suffixes[scale]);
}

std::string two_units(std::int64_t amount, std::int64_t ratio, std::string_view large, std::string_view small) {
  if (amount % ratio == 0) return fmt::format("{} {}", amount / ratio, large);
  return fmt::format("{} {} {} {}", amount / ratio, large, amount % ratio, small);
}

std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& letter : result) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return result;
}

std::optional<double> unit_bytes(std::string_view unit) {
  const std::string name = lowered(unit);
  if (name.empty() || name == "b") return 1;
  constexpr std::string_view kPrefixes = "kmgt";
  const auto power = kPrefixes.find(name.front());
  if (power == std::string_view::npos) return std::nullopt;
  const auto exponent = static_cast<double>(power + 1);
  if (name.substr(1) == "b") return std::pow(1000.0, exponent);
  if (name.substr(1) == "ib") return std::pow(1024.0, exponent);
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

[[noreturn]] void refuse_bytes(std::string_view what, std::string_view text, std::string_view reason) {
  constexpr std::size_t kShownLength = 60;
  throw ConfigError(fmt::format("{}: \"{}\" is not a byte size: {}", what, text.substr(0, kShownLength), reason),
                    {.remedy = "write a number and a unit, such as 4096, 64MiB (1024 * 1024) or 25MB (1000 * 1000)"});
}

}  // namespace

std::string format_bytes(std::int64_t bytes) {
  return scaled(bytes, 1024, kByteSuffixes);
}

std::string format_count(std::int64_t count) {
  return scaled(count, 1000, kCountSuffixes);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return fmt::format("{} s", seconds);
  if (seconds < 0) return "-" + format_seconds(-seconds);
  if (seconds == 0) return "0 s";
  if (seconds < 999.95e-9) return short_decimal(seconds * 1e9) + " ns";
  if (seconds < 999.95e-6) return short_decimal(seconds * 1e6) + " us";
  if (seconds < 999.95e-3) return short_decimal(seconds * 1e3) + " ms";
  if (seconds < 59.95) return short_decimal(seconds) + " s";
  if (seconds < 3599.5) return two_units(std::llround(seconds), 60, "min", "s");
  if (seconds < 86400 - 30) return two_units(std::llround(seconds / 60), 60, "h", "min");
  if (seconds < 1e15) return two_units(std::llround(seconds / 3600), 24, "d", "h");
  return fmt::format("{:.3g} d", seconds / 86400);
}

std::int64_t parse_bytes(std::string_view text, std::string_view what) {
  const std::string_view body = trimmed(text);
  if (body.empty()) refuse_bytes(what, text, "it is empty");
  if (body.front() == '-') refuse_bytes(what, text, "it is negative");
  const auto number_end = std::min(body.find_first_not_of("0123456789."), body.size());
  const std::string_view number = body.substr(0, number_end);
  const std::string_view unit = trimmed(body.substr(number_end));
  double value = 0;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (status != std::errc() || end != number.data() + number.size()) refuse_bytes(what, text, "it has no number");
  const auto factor = unit_bytes(unit);
  if (!factor) refuse_bytes(what, text, fmt::format("unknown unit \"{}\"", unit.substr(0, 20)));
  if (*factor == 1) {
    // Whole bytes are read as an integer: every digit counts.
    std::int64_t bytes = 0;
    const auto whole = std::from_chars(number.data(), number.data() + number.size(), bytes);
    if (whole.ec == std::errc::result_out_of_range) refuse_bytes(what, text, "it is too large");
    if (whole.ptr != number.data() + number.size()) refuse_bytes(what, text, "it is not a whole number of bytes");
    return bytes;
  }
  const double bytes = std::round(value * *factor);
  if (bytes >= static_cast<double>(std::numeric_limits<std::int64_t>::max())) {
    refuse_bytes(what, text, "it is too large");
  }
  return static_cast<std::int64_t>(bytes);
}

}  // namespace orthant
