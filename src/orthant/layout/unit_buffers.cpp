#include "orthant/layout/unit_buffers.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

namespace orthant {
namespace {

std::vector<int> coordinates_of(const std::vector<int>& users, const std::vector<int>& unit_pp_coordinates) {
  if (unit_pp_coordinates.empty()) return {0};
  std::set<int> found;
  for (const int user : users) found.insert(unit_pp_coordinates[static_cast<std::size_t>(user)]);
  return {found.begin(), found.end()};
}

// Parameters that units at `pp` borrow.
std::set<std::string_view> borrowed_at(const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates, int pp) {
  std::set<std::string_view> names;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (runs_at(static_cast<int>(u), unit_pp_coordinates, pp))
      names.insert(graph.units[u].borrowed.begin(), graph.units[u].borrowed.end());
  }
  return names;
}

}  // namespace

std::int64_t UnitBuffers::elements(const std::vector<int>& buffers) const {
  std::int64_t sum = 0;
  for (const int b : buffers) sum += (*this)[b].size;
  return sum;
}

UnitBuffers UnitBuffers::only(bool experts) const {
  UnitBuffers part = *this;
  for (auto* lists : {&part.used, &part.held}) {
    for (auto& list : *lists) std::erase_if(list, [&](int b) { return ((*this)[b].expert_tp > 0) != experts; });
  }
  return part;
}

UnitBuffers unit_buffers(const GraphSpec& graph, const Mesh& mesh, const Coordinate& coordinate,
                         const std::vector<int>& unit_groups, const std::vector<int>& unit_pp_coordinates) {
  UnitBuffers found;
  found.used.resize(graph.units.size());
  found.held.resize(graph.units.size());
  found.unit_groups = unit_groups;
  const int pp = coordinate[Axis::pp];
  const auto borrowed = borrowed_at(graph, unit_pp_coordinates, pp);
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    if (unit_groups.empty()) found.unit_groups.push_back(u);
    const auto lends = [&](const ParameterSpec& parameter) { return borrowed.contains(parameter.name); };
    const auto& parameters = graph.units[static_cast<std::size_t>(u)].parameters;
    if (!runs_at(u, unit_pp_coordinates, pp) && std::ranges::none_of(parameters, lends)) continue;
    for (FlatBuffer& buffer : flat_buffers(graph, u, mesh, coordinate)) {
      auto sharers = coordinates_of(buffer.users, unit_pp_coordinates);
      std::erase_if(buffer.users, [&](int user) { return !runs_at(user, unit_pp_coordinates, pp); });
      if (buffer.users.empty()) continue;
      const int b = static_cast<int>(found.all.size());
      for (const int user : buffer.users) found.used[static_cast<std::size_t>(user)].push_back(b);
      if (buffer.trainable) found.held[static_cast<std::size_t>(buffer.users.front())].push_back(b);
      found.owner_here.push_back(runs_at(u, unit_pp_coordinates, pp));
      found.pp_users.push_back(std::move(sharers));
      found.all.push_back(std::move(buffer));
    }
  }
  return found;
}

std::vector<std::vector<int>> tied_user_sets(const GraphSpec& graph, const std::vector<int>& unit_pp_coordinates) {
  std::set<std::vector<int>> sets;
  for (const auto& unit : graph.units) {
    for (const auto& parameter : unit.parameters) {
      if (!parameter.trainable) continue;
      auto sharers = coordinates_of(graph.users(parameter.name), unit_pp_coordinates);
      if (sharers.size() > 1) sets.insert(std::move(sharers));
    }
  }
  return {sets.begin(), sets.end()};
}

}  // namespace orthant
