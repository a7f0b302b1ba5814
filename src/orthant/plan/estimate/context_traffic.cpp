#include "orthant/plan/estimate/context_traffic.h"

#include "orthant/layout/unit_buffers.h"
#include "orthant/program/unit_programs.h"

namespace orthant {

ContextExchanged context_traffic(const GraphSpec& graph, const TensorSettings& settings, int coordinate) {
  ContextExchanged total;
  if (graph.context.degree == 1) return total;
  const bool trains = !graph.losses().empty();
  UnitPrograms programs(graph, remake_of(settings.recompute), {.training = trains});
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (!runs_at(static_cast<int>(u), settings.unit_pp_coordinates, settings.pp)) continue;
    const Program& program = programs[u];
    UnitSizes sizes = unit_sizes(graph, graph.units[u], graph.tensor.value_or(TensorSharing{}));
    sizes.compute = settings.compute;
    const auto add_list = [&](const std::vector<Operation>& list) {
      add(total, context_exchanged(program, list, sizes, graph.context, coordinate), settings.microbatches);
    };
    add_list(program.forward);
    if (trains && programs.facts().units[u]) add_list(program.both);
  }
  return total;
}

}  // namespace orthant
