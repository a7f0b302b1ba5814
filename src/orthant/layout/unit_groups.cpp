#include "orthant/layout/unit_groups.h"

#include <fmt/format.h>

#include <map>
#include <numeric>
#include <string_view>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

// Groups of units [begin, end), numbered from `first`.
std::vector<int> run_by_size(const GraphSpec& graph, std::size_t begin, std::size_t end, int first,
                             std::int64_t min_params) {
  std::vector<int> groups;
  int group = first;
  std::int64_t held = 0;  // by the group that is being filled
  for (std::size_t u = begin; u < end; ++u) {
    groups.push_back(group);
    held += graph.units[u].num_parameters();
    if (held < min_params) continue;
    ++group;
    held = 0;
  }
  const bool left_over = !groups.empty() && groups.back() == group;
  for (int& one : groups) {
    if (left_over && one == group && group > first) --one;
  }
  return groups;
}

std::vector<int> by_size(const GraphSpec& graph, std::int64_t min_params, const std::vector<int>& unit_stages) {
  if (min_params < 0) {
    throw ConfigError(fmt::format("parallel.units: min_params is {}", min_params), {.remedy = "set it to at least 0"});
  }
  std::vector<int> groups;
  while (groups.size() < graph.units.size()) {
    const std::size_t begin = groups.size();
    std::size_t end = begin + 1;
    while (end < graph.units.size() && (unit_stages.empty() || unit_stages[end] == unit_stages[begin])) ++end;
    const auto run = run_by_size(graph, begin, end, groups.empty() ? 0 : groups.back() + 1, min_params);
    groups.insert(groups.end(), run.begin(), run.end());
  }
  return groups;
}

bool matches(std::string_view pattern, std::string_view name) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

[[noreturn]] void refuse_unknown(const GraphSpec& graph, const std::string& pattern) {
  std::vector<std::string> names;
  for (const UnitSpec& unit : graph.units) names.push_back(unit.name);
  throw ConfigError(fmt::format("parallel.units: no unit of {} is named \"{}\"", graph.name, pattern),
                    {.remedy = did_you_mean(pattern, names)});
}

// Numbers that tell groups apart, in no order.
std::vector<int> by_name(const GraphSpec& graph, const std::vector<std::vector<std::string>>& names) {
  std::vector<int> list_of(graph.units.size(), -1);
  for (std::size_t list = 0; list < names.size(); ++list) {
    for (const std::string& pattern : names[list]) {
      bool known = false;
      for (std::size_t u = 0; u < graph.units.size(); ++u) {
        if (!matches(pattern, graph.units[u].name)) continue;
        if (list_of[u] >= 0) {
          throw ConfigError(fmt::format("parallel.units names unit \"{}\" twice, the second time by \"{}\"",
                                        graph.units[u].name, pattern),
                            {.remedy = "name each unit once; those left out are groups of their own"});
        }
        list_of[u] = static_cast<int>(list);
        known = true;
      }
      if (!known) refuse_unknown(graph, pattern);
    }
  }
  for (std::size_t u = 0; u < list_of.size(); ++u) {
    if (list_of[u] < 0) list_of[u] = static_cast<int>(names.size() + u);
  }
  return list_of;
}

std::vector<int> numbered_by_first(std::vector<int> groups) {
  std::map<int, int> numbers;
  for (int& group : groups) group = numbers.emplace(group, static_cast<int>(numbers.size())).first->second;
  return groups;
}

}  // namespace

std::vector<int> unit_groups(const GraphSpec& graph, const UnitGrouping& grouping,
                             const std::vector<int>& unit_stages) {
  switch (grouping.kind) {
    case UnitGrouping::Kind::layer:
      break;
    case UnitGrouping::Kind::min_params:
      return by_size(graph, grouping.min_params, unit_stages);
    case UnitGrouping::Kind::names:
      return numbered_by_first(by_name(graph, grouping.names));
  }
  std::vector<int> alone(graph.units.size());
  std::iota(alone.begin(), alone.end(), 0);
  return alone;
}

}  // namespace orthant
