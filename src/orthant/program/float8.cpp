#include "orthant/program/float8.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/program/sizes.h"

namespace orthant {
namespace {

constexpr const char* kUseBfloat16 = "use precision.compute=bfloat16";

// Whether every rank has a multiple of 16 of the dim.
bool divides(const ParameterAt& at, int dim, const UnitSizes& sizes) {
  const std::int64_t whole = at.shape[to_index(dim)];
  if (dim != at.cut_dim) return whole % kFloat8Multiple == 0;
  if (at.cut.granule % kFloat8Multiple == 0) return true;
  const auto blocks = at.cut.blocks.empty() ? std::vector<std::int64_t>{whole} : at.cut.blocks;
  const bool even = std::ranges::all_of(blocks, [&](std::int64_t block) {
    const std::int64_t granules = block / at.cut.granule;
    return granules < sizes.degree || granules % sizes.degree == 0;  // fewer are held in copies
  });
  return even && local_shape(at, sizes)[to_index(dim)] % kFloat8Multiple == 0;
}

void check_weights(const GraphSpec& graph, const UnitSpec& unit) {
  const Program program = compile_unit(graph, unit, {.training = false});
  const UnitSizes sizes{.degree = graph.tensor.value_or(TensorSharing{}).degree};
  for (const auto& operation : program.forward) {
    if (operation.name != "project") continue;
    const auto& weight = program.parameters[to_index(operation.parameters.front())];
    if (divides(weight.at, 0, sizes) && divides(weight.at, 1, sizes)) continue;
    const std::string of_rank =
        fmt::format(", on one of {} tp ranks up to [{}]", sizes.degree, fmt::join(local_shape(weight.at, sizes), ", "));
    throw ConfigError(
        fmt::format("precision.compute=float8: {} of unit {} is [{}]{}; cards multiply float8 by {} outputs and inputs "
                    "at a time",
                    weight.use.name, unit.name, fmt::join(weight.at.shape, ", "), sizes.degree > 1 ? of_rank : "",
                    kFloat8Multiple),
        {.remedy = fmt::format("use sizes that are multiples of {}{}, or precision.compute=bfloat16", kFloat8Multiple,
                               sizes.degree > 1 ? " on every tp rank" : "")});
  }
}

void check_no_experts(const GraphSpec& graph) {
  for (const UnitSpec& unit : graph.units) {
    if (unit.num_experts() == 0) continue;
    throw ConfigError(fmt::format("precision.compute=float8: unit {} is a mixture of {} experts, whose products have "
                                  "no float8",
                                  unit.name, unit.num_experts()),
                      {.remedy = kUseBfloat16});
  }
}

bool is_product(const Operation& operation) {
  return operation.name == "product";
}

class OperandRounder {
 public:
  explicit OperandRounder(Program& program) : program_(program) {}

  void round(std::vector<Operation>& list) {
    std::set<int> rounded;
    std::vector<Operation> made;
    for (auto& operation : list) {
      if (operation.attributes.flag(kFloat8)) {
        const auto [values, scales] = operands(operation.in[0]);
        if (rounded.insert(operation.in[0]).second) {
          made.push_back({.name = "round_float8", .in = {operation.in[0]}, .out = {values, scales}});
        }
        operation.in[0] = values;
        operation.in.push_back(scales);
      }
      made.push_back(std::move(operation));
    }
    list = std::move(made);
  }

 private:
  // Lists that round one value give the result one name.
  std::pair<int, int> operands(int value) {
    const auto [place, added] = rounded_.try_emplace(value);
    if (!added) return place->second;
    const ProgramValue from = program_.values[to_index(value)];
    const int number = static_cast<int>(program_.values.size());
    program_.values.push_back({from.name + ".float8", from.at, Number::float8});
    ValuePlace rows{{from.at.dims.front(), {Sym::one, 1}}};
    program_.values.push_back({from.name + ".scales", std::move(rows), Number::statistic});
    return place->second = {number, number + 1};
  }

  Program& program_;
  std::map<int, std::pair<int, int>> rounded_;
};

}  // namespace

GraphSpec with_float8_products(const GraphSpec& resolved) {
  GraphSpec graph = resolved;
  check_no_experts(resolved);
  std::map<const Body*, SharedBody> marked;
  bool any = false;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = resolved.units[u];
    if (!unit.recomputable || !unit.body || std::ranges::none_of(unit.body->operations, is_product)) continue;
    any = true;
    const auto [place, added] = marked.try_emplace(&*unit.body);
    if (added) {
      check_weights(resolved, unit);
      Body body = *unit.body;
      for (auto& operation : body.operations) {
        if (is_product(operation)) operation.attributes.set(kFloat8, 1);
      }
      place->second = SharedBody(std::move(body));
    }
    graph.units[u].body = place->second;
  }
  if (any) return graph;
  throw ConfigError(fmt::format("precision.compute=float8: graph \"{}\" has no transformer layer with products, which "
                                "float8 is for",
                                resolved.name),
                    {.remedy = kUseBfloat16});
}

std::set<std::int64_t> float8_widths(const GraphSpec& marked) {
  const UnitSizes sizes{.degree = marked.tensor.value_or(TensorSharing{}).degree};
  std::set<const Body*> seen;
  std::set<std::int64_t> widths;
  for (const UnitSpec& unit : marked.units) {
    if (!unit.recomputable || !unit.body || !seen.insert(&*unit.body).second) continue;
    const Program program = compile_unit(marked, unit, {.training = false});
    for (const auto& operation : program.forward) {
      if (operation.name != "project" || !operation.attributes.flag(kFloat8)) continue;
      for (const auto size : local_shape(program.parameters[to_index(operation.parameters.front())].at, sizes)) {
        widths.insert(size);
      }
    }
  }
  return widths;
}

void round_operands(Program& program) {
  OperandRounder rounder(program);
  for (auto* list : {&program.forward, &program.both, &program.input_part, &program.weight_part}) rounder.round(*list);
}

}  // namespace orthant
