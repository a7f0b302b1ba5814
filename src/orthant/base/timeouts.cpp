#include "orthant/base/timeouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

struct PhaseField {
  const char* name;
  double Timeouts::* seconds;
};

// In the order of JobPhase.
constexpr std::array<PhaseField, 3> kFields = {
    {{"start", &Timeouts::start_seconds}, {"step", &Timeouts::step_seconds}, {"save", &Timeouts::save_seconds}}};
constexpr double kMostSeconds = 1e7;

double seconds_of(std::string_view text, std::string_view what, std::string_view whole) {
  double seconds = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool is_number = status == std::errc() && end == text.data() + text.size();
  if (is_number && seconds > 0 && seconds <= kMostSeconds) return seconds;
  throw ConfigError(fmt::format("{} {} is not a number of seconds between 0 and 10000000", what, whole),
                    {.remedy = fmt::format("use e.g. {0} 300, or {0} start=300,step=60,save=900", what)});
}

double& field_of(Timeouts& timeouts, std::string_view name, std::string_view value, std::string_view what) {
  std::vector<std::string> names;
  for (const auto& field : kFields) {
    if (name == field.name) return timeouts.*field.seconds;
    names.emplace_back(field.name);
  }
  throw ConfigError(fmt::format("{}: there is no phase '{}'", what, name),
                    {.remedy = fmt::format("use {} {}={} (phases are start, step and save)", what,
                                           nearest(name, names).value_or("step"), value.empty() ? "60" : value)});
}

}  // namespace

const char* to_string(JobPhase phase) {
  return kFields[static_cast<std::size_t>(phase)].name;
}

double Timeouts::of(JobPhase phase) const {
  return this->*kFields[static_cast<std::size_t>(phase)].seconds;
}

Timeouts Timeouts::times(double factor) const {
  return {start_seconds * factor, step_seconds * factor, save_seconds * factor};
}

std::string to_string(const Timeouts& timeouts) {
  std::string text;
  for (const auto& field : kFields) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", field.name, timeouts.*field.seconds);
  }
  return text;
}

Timeouts parse_timeouts(std::string_view text, std::string_view what) {
  if (text.find('=') == std::string_view::npos) return Timeouts::all(seconds_of(text, what, text));
  Timeouts timeouts;
  std::vector<std::string_view> seen;
  if (text.ends_with(',')) {
    throw ConfigError(fmt::format("{} {}: nothing comes after the last comma", what, text),
                      {.remedy = fmt::format("use {} {}", what, text.substr(0, text.size() - 1))});
  }
  for (std::string_view rest = text; !rest.empty();) {
    const auto item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    const auto equals = std::min(item.find('='), item.size());
    const auto name = item.substr(0, equals);
    const auto value = item.substr(std::min(equals + 1, item.size()));
    auto& field = field_of(timeouts, name, value, what);
    field = seconds_of(value, what, item);
    for (const auto& earlier : seen) {
      if (earlier == name) {
        throw ConfigError(fmt::format("{} {} names {} twice", what, text, name), {.remedy = "give each phase once"});
      }
    }
    seen.push_back(name);
  }
  return timeouts;
}

}  // namespace orthant
