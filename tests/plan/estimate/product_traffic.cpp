#include "plan/estimate/product_traffic.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>

#include "orthant/graph/backward.h"

namespace orthant::test {
namespace {

// A product over tp, or a lookup in a cut table.
struct UnitProduct {
  enum class Kind { column, row, lookup };
  Kind kind = Kind::column;
  const ParameterSpec* weight = nullptr;
  bool input_gradient = false;
};

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

void add(Exchanged::Entry& entry, std::int64_t bytes, std::int64_t calls = 1) {
  entry.calls += calls;
  entry.bytes += bytes;
}

void add(Exchanged& total, const Exchanged& part) {
  for (const auto member : {&Exchanged::sum, &Exchanged::gather, &Exchanged::scatter}) {
    add(total.*member, (part.*member).bytes, (part.*member).calls);
  }
}

class Counter {
 public:
  Counter(const GraphSpec& graph, const UnitSpec& unit, bool inputs_need_gradient)
      : graph_(graph), unit_(unit), products_(unit_products(graph, unit, inputs_need_gradient)) {
    if (const auto field = graph.tokens_of(unit); !field.empty()) tokens_ = num_elements(graph.value(field).shape);
  }

  Exchanged forward() const {
    Exchanged sent;
    for (const UnitProduct& product : products_) {
      const Shape& shape = product.weight->shape;
      if (product.kind != UnitProduct::Kind::column) {
        add(sum_of(sent), bytes(shape[product.kind == UnitProduct::Kind::row ? 0 : 1]));
      } else if (graph_.tensor->sequence_parallel) {
        add(sent.gather, bytes(shape[1]));
      }
    }
    add_head(sent);
    for (const std::string& name : unit_.inputs) {
      const ValueSpec& value = graph_.value(name);
      if (unit_.is_loss && value.tp) add(sent.sum, 3 * tokens_ * kStatistic, 3);
      if (unit_.kind.ends_with(".pooler") && value.sequence_sharded) {
        add(sent.sum, value.shape.front() * value.shape.back() * kElement);
      }
    }
    return sent;
  }

  Exchanged backward() const {
    Exchanged sent;
    for (const UnitProduct& product : products_) {
      const Shape& shape = product.weight->shape;
      const bool trained = product.weight->trainable;
      if (product.kind == UnitProduct::Kind::column) {
        if (product.input_gradient) add(sum_of(sent), bytes(shape[1]));
        // A head that is the loss keeps all tokens.
        const bool again = trained && graph_.tensor->regather && !unit_.logits;
        if (again && graph_.tensor->sequence_parallel) add(sent.gather, bytes(shape[1]));
      } else if (graph_.tensor->sequence_parallel) {
        const bool row = product.kind == UnitProduct::Kind::row;
        if (trained || (row && product.input_gradient)) add(sent.gather, bytes(shape[row ? 0 : 1]));
      }
    }
    return sent;
  }

 private:
  static constexpr std::int64_t kElement = 4;    // float32
  static constexpr std::int64_t kStatistic = 8;  // float64

  std::int64_t bytes(std::int64_t channels) const { return tokens_ * channels * kElement; }
  Exchanged::Entry& sum_of(Exchanged& sent) const { return graph_.tensor->sequence_parallel ? sent.scatter : sent.sum; }

  // A column product that no row product follows is a head.
  void add_head(Exchanged& sent) const {
    const bool is_head = !products_.empty() && std::ranges::all_of(products_, [](const auto& product) {
      return product.kind == UnitProduct::Kind::column;
    });
    if (unit_.logits) {
      const std::int64_t chunks = (tokens_ + unit_.logits->rows - 1) / unit_.logits->rows;
      add(sent.sum, 3 * tokens_ * kStatistic, 3 * chunks);
    } else if (is_head && !graph_.value(unit_.outputs.front()).tp) {
      add(sent.gather, num_elements(graph_.value(unit_.outputs.front()).shape) * kElement);
    }
  }

  const GraphSpec& graph_;
  const UnitSpec& unit_;
  std::vector<UnitProduct> products_;
  std::int64_t tokens_ = 0;
};

bool inputs_need_gradient(const GraphSpec& graph, const UnitSpec& unit, const BackwardFacts& facts) {
  return std::ranges::any_of(unit.inputs, [&](const std::string& name) {
    const auto found = std::ranges::find(graph.values, name, &ValueSpec::name);
    return found != graph.values.end() && facts.values[static_cast<std::size_t>(found - graph.values.begin())];
  });
}

}  // namespace

ProductTraffic product_traffic(const GraphSpec& graph) {
  const BackwardFacts facts = backward_facts(graph);
  ProductTraffic traffic;
  for (std::size_t u = 0; u < graph.units.size(); ++u) {
    const UnitSpec& unit = graph.units[u];
    const Counter counter(graph, unit, inputs_need_gradient(graph, unit, facts));
    add(traffic.step, counter.forward());
    if (!facts.units[u]) continue;
    add(traffic.step, counter.backward());
    if (unit.recomputable) add(traffic.again, counter.forward());
  }
  return traffic;
}

}  // namespace orthant::test
