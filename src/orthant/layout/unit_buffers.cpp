#include "orthant/layout/unit_buffers.h"

#include <utility>

namespace orthant {

std::int64_t UnitBuffers::elements(const std::vector<int>& buffers) const {
  std::int64_t sum = 0;
  for (const int b : buffers) sum += (*this)[b].size;
  return sum;
}

UnitBuffers unit_buffers(const GraphSpec& graph, const Mesh& mesh, const Coordinate& coordinate,
                         const std::vector<int>& unit_groups) {
  UnitBuffers found;
  found.used.resize(graph.units.size());
  found.held.resize(graph.units.size());
  found.unit_groups = unit_groups;
  for (int u = 0; u < static_cast<int>(graph.units.size()); ++u) {
    if (unit_groups.empty()) found.unit_groups.push_back(u);
    for (FlatBuffer& buffer : flat_buffers(graph, u, mesh, coordinate)) {
      const int b = static_cast<int>(found.all.size());
      for (const int user : buffer.users) found.used[static_cast<std::size_t>(user)].push_back(b);
      if (buffer.trainable) found.held[static_cast<std::size_t>(u)].push_back(b);
      found.all.push_back(std::move(buffer));
    }
  }
  return found;
}

}  // namespace orthant
