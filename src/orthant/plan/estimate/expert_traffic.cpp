#include "orthant/plan/estimate/expert_traffic.h"

#include "orthant/base/index.h"
#include "orthant/layout/unit_buffers.h"
#include "orthant/program/sizes.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

// What one microbatch of a unit sends, and how many rows it has.
class UnitTraffic {
 public:
  UnitTraffic(const Program& program, const UnitSizes& sizes) : program_(program), sizes_(sizes) {}

  // `back`: rows that come back, of `microbatches` in all.
  void add_list(const std::vector<Operation>& list, std::int64_t microbatches,
                const std::optional<std::int64_t>& back) {
    for (const Operation& operation : list) {
      if (operation.name == "count_held") {
        total.calls += microbatches;
        total.bytes += microbatches * bytes_of(operation.in.front());
      } else if (operation.name == "start" && operation.exchange->moves_rows()) {
        const int moved = operation.in.front();
        const std::int64_t rows = local_shape(program_.values[to_index(moved)].at, sizes_).front();
        const bool returns = operation.exchange->kind == ExchangeSpec::Kind::from_experts;
        total.calls += microbatches;
        total.bytes += (returns ? back.value_or(microbatches * rows) : microbatches * rows) * (bytes_of(moved) / rows);
      }
    }
  }

  Exchanged::Entry total;

 private:
  std::int64_t bytes_of(int value) const { return local_bytes(program_.values[to_index(value)], sizes_); }

  const Program& program_;
  const UnitSizes& sizes_;
};

}  // namespace

Exchanged::Entry expert_traffic(const GraphSpec& graph, const TensorSettings& settings,
                                const std::vector<std::int64_t>& taken) {
  Exchanged::Entry total;
  if (graph.expert_degree == 1) return total;
  const bool trains = !graph.losses().empty();
  UnitPrograms programs(graph, remake_of(settings.recompute), {.training = trains});
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const bool here = runs_at(static_cast<int>(u), settings.unit_pp_coordinates, settings.pp);
    if (graph.units[u].num_experts() == 0 || !here) continue;
    UnitSizes sizes = unit_sizes(graph, graph.units[u], graph.tensor.value_or(TensorSharing{}));
    sizes.compute = settings.compute;
    UnitTraffic unit(programs[u], sizes);
    const auto back = taken.empty() ? std::nullopt : std::optional(taken[u]);
    unit.add_list(programs[u].forward, settings.microbatches, back);
    if (trains && programs.facts().units[u]) unit.add_list(programs[u].both, settings.microbatches, back);
    total.calls += unit.total.calls;
    total.bytes += unit.total.bytes;
  }
  return total;
}

}  // namespace orthant
