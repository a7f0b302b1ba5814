#include "orthant/layout/data_views.h"

#include <utility>

#include "orthant/layout/expert_view.h"

namespace orthant {

std::vector<int> DataView::all() const {
  std::vector<int> found;
  for (int b = 0; b < static_cast<int>(buffers.all.size()); ++b) {
    if ((buffers[b].expert_tp > 0) == experts) found.push_back(b);
  }
  return found;
}

std::vector<DataView> data_views(const GraphSpec& graph, const DataSettings& settings) {
  auto buffers =
      unit_buffers(graph, settings.mesh, settings.coordinate, settings.unit_groups, settings.unit_pp_coordinates);
  std::vector<DataView> views;
  const int shared_by = expert_tp(graph, settings.mesh);
  if (shared_by == 0) {
    views.push_back({std::move(buffers), settings.mesh, settings});
    return views;
  }
  views.push_back({buffers.only(/*experts=*/false), settings.mesh, settings});
  DataView experts{buffers.only(/*experts=*/true), expert_mesh(settings.mesh, shared_by), settings, /*experts=*/true};
  experts.settings.policy = effective_policy(settings.policy, experts.mesh);
  views.push_back(std::move(experts));
  return views;
}

}  // namespace orthant
