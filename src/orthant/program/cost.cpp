#include "orthant/program/cost.h"

#include <algorithm>

#include "orthant/base/index.h"
#include "orthant/program/sizes.h"
#include "orthant/program/unit_programs.h"

namespace orthant {
namespace {

class Counter {
 public:
  Counter(const Program& program, const UnitSizes& sizes) : program_(program), sizes_(sizes) {}

  double flops(const std::vector<Operation>& list, std::string_view part) const {
    double sum = 0;
    for (const auto& operation : list) {
      if (operation.name == part) sum += product_flops(operation);
    }
    return sum;
  }

  // Of a weight's product with the tokens of the operation's first input.
  double product_flops(const Operation& operation) const {
    const Shape weight = local_shape(program_.parameters[to_index(operation.parameters.front())].at, sizes_);
    const auto tokens = local_shape(program_.values[to_index(operation.in.front())].at, sizes_).front();
    const auto& at = program_.parameters[to_index(operation.parameters.front())].at;
    const auto experts = operation.attributes.find("experts") != nullptr ? operation.attributes.integer("experts") : 1;
    const double out = static_cast<double>(at.shape[0]) / static_cast<double>(experts);
    const double made = experts > 1 ? out * static_cast<double>(weight[1]) : static_cast<double>(weight[0] * weight[1]);
    return 2 * static_cast<double>(tokens) * made;
  }

  // Scores and weighted sum, of what masks leave.
  double attention_flops(const std::vector<Operation>& list) const {
    double sum = 0;
    for (const auto& operation : list) {
      if (operation.name != "attention" && operation.name != "rotary_attention") continue;
      const int out = operation.out[operation.name == "attention" ? 0 : 1];
      const auto channels = local_shape(program_.values[to_index(out)].at, sizes_).back();
      const double pairs = static_cast<double>(sizes_.sequence) * static_cast<double>(sizes_.whole_sequence);
      const double all = 4 * static_cast<double>(sizes_.rows) * pairs * static_cast<double>(channels);
      sum += all * attended_share(operation.attributes, sizes_.whole_sequence);
    }
    return sum;
  }

  std::int64_t bytes(const std::vector<int>& values) const { return activation_bytes(program_, values, sizes_); }

 private:
  const Program& program_;
  const UnitSizes& sizes_;
};

// What a mode changes, and with `none` the rest.
void add_mode(UnitCost& cost, const Program& program, const UnitSizes& sizes, Recompute mode) {
  const Counter count(program, sizes);
  cost.kept_bytes.at(static_cast<std::size_t>(mode)) = count.bytes(program.kept);
  if (mode != Recompute::none) return;
  const double attention = count.attention_flops(program.forward);
  const double head = count.flops(program.forward, "head_loss");
  const bool head_input = std::ranges::any_of(program.gradients, [](int gradient) { return gradient >= 0; });
  cost.forward_flops =
      count.flops(program.forward, "project") + count.flops(program.forward, "expert_product") + head + attention;
  cost.input_flops = count.flops(program.both, "product_back") + count.flops(program.both, "expert_product_back") +
                     (head_input ? head : 0) + 2 * attention;
  cost.weight_flops =
      count.flops(program.both, "product_weight") + count.flops(program.both, "expert_product_weight") + head;
  cost.deferred_bytes = count.bytes(program.deferred);
  cost.output_bytes = count.bytes(program.outputs);
}

}  // namespace

double attended_share(bool causal, std::int64_t window, std::int64_t sequence) {
  if (!causal) return 1;
  if (window == 0 || window >= sequence) return 0.5;
  const double share = static_cast<double>(window) / static_cast<double>(sequence);
  return share * (1 - share / 2);
}

double attended_share(const Attributes& attention, std::int64_t sequence) {
  return attended_share(attention.flag("causal"), attention.integer("window"), sequence);
}

void add_costs(GraphSpec& graph, const TensorSharing& sharing, std::string_view only, ProgramCache* cache) {
  const GraphSpec& read = graph;
  std::vector<UnitCost> costs(graph.units.size());
  const auto is_meant = [&](const UnitSpec& unit) { return unit.body && (only.empty() || unit.name == only); };
  for (const Recompute mode : kRecomputeModes) {
    UnitPrograms programs(read, remake_of(mode), {.sharing = sharing}, cache);
    for (std::size_t u = 0; u < graph.units.size(); ++u) {
      const UnitSpec& unit = read.units[u];
      if (!is_meant(unit) || (mode != Recompute::none && !unit.recomputable)) continue;
      add_mode(costs[u], programs[u], unit_sizes(read, unit, read.tensor.value_or(sharing)), mode);
      if (!unit.recomputable) costs[u].kept_bytes.fill(costs[u].kept_bytes.front());
    }
  }
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    if (is_meant(graph.units[u])) graph.units[u].cost = costs[u];
  }
}

void set_kept_bytes(GraphSpec& graph, const std::vector<std::string>& operations) {
  const TensorSharing sharing = graph.tensor.value_or(TensorSharing{});
  UnitPrograms programs(graph, remake_of(Recompute::none, operations));
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    UnitSpec& unit = graph.units[u];
    if (!unit.body || !unit.recomputable) continue;
    const Program& program = programs[u];
    unit.cost.kept_bytes.front() = activation_bytes(program, program.kept, unit_sizes(graph, unit, sharing));
  }
}

}  // namespace orthant
