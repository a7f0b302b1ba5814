#include "orthant/mesh/axis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"
#include "orthant/mesh/fields.h"

namespace orthant {
namespace {

constexpr std::array<std::string_view, 6> kNames = {"pp", "dp", "fsdp", "cp", "tp", "ep"};
// Words that people write instead of the names.
constexpr std::array<std::string_view, 6> kWords = {"pipeline", "replicas", "shards", "context", "tensor", "expert"};

// The axis whose name or word is nearest to `text`.
std::optional<Axis> probably_meant(std::string_view text) {
  std::vector<std::string> candidates(kNames.begin(), kNames.end());
  candidates.insert(candidates.end(), kWords.begin(), kWords.end());
  const std::optional<std::string> found = nearest(text, candidates);
  if (!found) return std::nullopt;
  const auto place = std::ranges::find(candidates, *found) - candidates.begin();
  return kAxes[static_cast<std::size_t>(place) % kAxes.size()];
}

}  // namespace

std::string_view axis_name(Axis axis) {
  return kNames[static_cast<std::size_t>(axis)];
}

Axis parse_axis(std::string_view text) {
  for (Axis axis : kAxes) {
    if (axis_name(axis) == text) return axis;
  }
  const std::optional<Axis> meant = probably_meant(text);
  throw ConfigError(fmt::format("unknown axis {:?}", text),
                    {.remedy = fmt::format("{}the axes are {}", meant ? fmt::format("use {}; ", axis_name(*meant)) : "",
                                           fmt::join(kNames, ", "))});
}

AxisSet AxisSet::parse(std::string_view text) {
  AxisSet set;
  for (std::string_view field : split_fields(text, '+')) {
    const Axis axis = parse_axis(field);
    if (set.contains(axis)) {
      throw ConfigError(fmt::format("axis {} is named twice in {:?}", axis_name(axis), text),
                        {.remedy = "name each axis once"});
    }
    set = set | axis;
  }
  return set;
}

std::string AxisSet::name() const {
  std::string text;
  for (Axis axis : *this) {
    if (!text.empty()) text += '+';
    text += axis_name(axis);
  }
  return text.empty() ? "none" : text;
}

}  // namespace orthant
