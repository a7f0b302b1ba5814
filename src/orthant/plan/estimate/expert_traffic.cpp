#include "orthant/plan/estimate/expert_traffic.h"

#include <algorithm>

#include "orthant/base/index.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/program/sizes.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

// Of one microbatch of a unit.
struct RoutedRows {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // of one row
};

RoutedRows routed_rows(const Program& program, const UnitSizes& sizes) {
  const auto dispatch = std::ranges::find(program.forward, "dispatch", &Operation::name);
  const Shape shape = local_shape(program.values[to_index(dispatch->out.front())].at, sizes);
  return {shape[0], shape[1] * bytes_of(sizes.compute)};
}

}  // namespace

TokenExchanges token_exchanges(const Operation& operation) {
  if (operation.name == "dispatch") return {.to_experts = 1, .counts = 1};
  if (operation.name == "dispatch_back" || operation.name == "combine") return {.from_experts = 1};
  if (operation.name == "combine_back") return {.to_experts = 1, .from_experts = 1};
  return {};
}

Exchanged::Entry expert_traffic(const GraphSpec& graph, const TensorSettings& settings,
                                const std::vector<std::int64_t>& taken) {
  Exchanged::Entry total;
  if (graph.expert_degree == 1) return total;
  const bool trains = !graph.losses().empty();
  UnitPrograms programs(graph, remake_of(settings.recompute), {.training = trains});
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const std::int64_t experts = graph.units[u].num_experts();
    if (experts == 0 || !runs_at(static_cast<int>(u), settings.unit_pp_coordinates, settings.pp)) continue;
    UnitSizes sizes = unit_sizes(graph, graph.units[u], graph.tensor.value_or(TensorSharing{}));
    sizes.compute = settings.compute;
    const RoutedRows routed = routed_rows(programs[u], sizes);
    const std::int64_t back = taken.empty() ? settings.microbatches * routed.rows : taken[u];
    const auto add_list = [&](const std::vector<Operation>& list) {
      for (const Operation& operation : list) {
        const TokenExchanges made = token_exchanges(operation);
        total.calls += settings.microbatches * (made.to_experts + made.from_experts + made.counts);
        total.bytes += settings.microbatches * (made.to_experts * routed.rows * routed.bytes +
                                                made.counts * experts * bytes_of(DType::int64)) +
                       made.from_experts * back * routed.bytes;
      }
    };
    add_list(programs[u].forward);
    if (trains && programs.facts().units[u]) add_list(programs[u].both);
  }
  return total;
}

}  // namespace orthant
