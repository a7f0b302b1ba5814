#include "orthant/plan/unit_products.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

namespace orthant {
namespace {

constexpr int kLast = std::numeric_limits<int>::max();

// A parameter that a unit owns or borrows.
struct Use {
  const ParameterSpec* parameter = nullptr;
  std::string_view branch = {};  // the first part of its name after its owner's: "attention", "norm1"
  int time = 0;
};

bool is_cut_matrix(const ParameterSpec& parameter) {
  return parameter.tp && parameter.shape.size() == 2;
}

Use use_of(const UnitSpec& owner, const ParameterSpec& parameter) {
  std::string_view rest = parameter.name;
  if (rest.starts_with(owner.name + ".")) rest.remove_prefix(owner.name.size() + 1);
  const std::size_t dot = rest.find('.');
  return {.parameter = &parameter, .branch = dot == std::string_view::npos ? "" : rest.substr(0, dot)};
}

// Within branch c: column products, the row product, then what is left (its norm, the bias of its sum). A branch
// without matrices is a norm; the n-th comes before branch n. Tables are multiplied after everything else.
void set_times(std::vector<Use>& uses) {
  std::map<std::string_view, int> branches;
  std::map<std::string_view, int> norms;
  const auto number = [](auto& numbers, std::string_view name) {
    return numbers.try_emplace(name, static_cast<int>(numbers.size())).first->second;
  };
  for (const Use& use : uses) {
    if (use.parameter->shape.size() == 2 && !use.parameter->table) number(branches, use.branch);
  }
  for (Use& use : uses) {
    const auto& tp = use.parameter->tp;
    if (branches.contains(use.branch)) {
      const int step = !tp ? 3 : tp->dim == 0 ? 1 : 2;
      use.time = 4 * number(branches, use.branch) + step;
    } else {
      use.time = tp || use.parameter->table ? kLast : 4 * number(norms, use.branch);
    }
  }
}

std::vector<Use> uses_of(const GraphSpec& graph, const UnitSpec& unit) {
  std::vector<Use> uses;
  for (const ParameterSpec& parameter : unit.parameters) uses.push_back(use_of(unit, parameter));
  for (const std::string& name : unit.borrowed) {
    uses.push_back(use_of(graph.units[static_cast<std::size_t>(graph.owner(name))], graph.parameter(name)));
  }
  set_times(uses);
  return uses;
}

}  // namespace

std::vector<UnitProduct> unit_products(const GraphSpec& graph, const UnitSpec& unit, bool inputs_need_gradient) {
  using Kind = UnitProduct::Kind;
  const std::vector<Use> uses = uses_of(graph, unit);
  const bool reads_ids = std::ranges::all_of(unit.inputs, [&](const auto& name) { return graph.is_batch_field(name); });
  std::vector<UnitProduct> products;
  std::set<std::string_view> joined;
  for (const Use& use : uses) {
    const ParameterSpec& weight = *use.parameter;
    if (!is_cut_matrix(weight)) continue;
    if (!weight.joined.empty() && !joined.insert(weight.joined).second) continue;
    const bool before = std::ranges::any_of(
        uses, [&](const Use& other) { return other.parameter->trainable && other.time < use.time; });
    products.push_back({.kind = weight.table && reads_ids ? Kind::lookup
                                : weight.tp->dim == 0     ? Kind::column
                                                          : Kind::row,
                        .weight = &weight,
                        .input_gradient = inputs_need_gradient || before});
  }
  return products;
}

}  // namespace orthant
