// A small graph with everything a pipeline meets: a value with four readers, a tied parameter, two losses, a unit that
// drops values. Its units use the same functions as the real models.
//
//   x -> a -> h -> b -> hb -\
//              h -> c -> hc --> e (borrows a.weight) -> first_loss
//              h -> d -> hd ---> f (h, hd) -> second_loss
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "orthant/nn/dropout.h"
#include "orthant/nn/linear.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/executor.h"

namespace orthant::test {

inline constexpr std::int64_t kWidth = 6;

inline UnitSpec toy_unit(std::string name, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  UnitSpec unit;
  unit.name = name;
  unit.kind = "toy";
  unit.inputs = std::move(inputs);
  unit.outputs = std::move(outputs);
  unit.recomputable = true;
  unit.cost.forward_flops = unit.cost.input_flops = unit.cost.weight_flops = 1;
  unit.parameters.push_back({.name = name + ".weight", .shape = {kWidth, kWidth}, .init = {Init::Kind::normal, 0.3}});
  unit.parameters.push_back(
      {.name = name + ".bias", .shape = {kWidth}, .init = {Init::Kind::normal, 0.1}, .decay = false});
  return unit;
}

inline GraphSpec toy_spec() {
  GraphSpec graph;
  graph.name = "toy";
  graph.batch_fields = {{.name = "x", .shape = {4, kWidth}, .differentiable = false}};
  for (const char* name : {"h", "hb", "hc", "hd", "first_loss", "second_loss"}) {
    graph.values.push_back({.name = name, .shape = {4, kWidth}});
  }
  graph.units = {toy_unit("a", {"x"}, {"h"}),
                 toy_unit("b", {"h"}, {"hb"}),
                 toy_unit("c", {"h"}, {"hc"}),
                 toy_unit("d", {"h"}, {"hd"}),
                 toy_unit("e", {"hb", "hc"}, {"first_loss"}),
                 toy_unit("f", {"h", "hd"}, {"second_loss"})};
  graph.units[4].borrowed = {"a.weight"};
  graph.units[4].is_loss = graph.units[5].is_loss = true;
  graph.units[4].recomputable = graph.units[5].recomputable = false;
  return graph;
}

// sum of inputs -> linear -> dropout -> tanh; a loss unit multiplies with the borrowed weight and sums squares.
class ToyUnit : public Unit {
 public:
  explicit ToyUnit(const UnitParameters& p)
      : name_(p.spec().name),
        loss_(p.spec().is_loss),
        weight_(p["weight"]),
        bias_(p["bias"]),
        borrowed_(p.spec().borrowed.empty() ? nullptr : &p.named(p.spec().borrowed.front())) {}

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    auto x = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) x = x + inputs[i];
    auto y = nn::dropout(nn::linear(x, weight_, &bias_, pass), 0.25, name_, pass).tanh();
    if (borrowed_ != nullptr) y = nn::linear(y, *borrowed_, nullptr, pass);
    return {loss_ ? y.square().sum() : y};
  }

 private:
  std::string name_;
  bool loss_;
  nn::Parameter& weight_;
  nn::Parameter& bias_;
  nn::Parameter* borrowed_;
};

// Parameters and units of the toy graph in float64.
struct Toy {
  explicit Toy(GraphSpec spec, DType dtype = DType::float64)
      : graph(std::move(spec)),
        store(graph, Mesh(), 0, Precision{dtype, dtype, dtype},
              [](std::int64_t n, at::ScalarType type) { return at::zeros({n}, at::TensorOptions().dtype(type)); }) {
    store.initialise(7);
    for (int u = 0; u < static_cast<int>(graph.units.size()); ++u)
      units.push_back(std::make_unique<ToyUnit>(store.unit(u)));
  }

  GraphSpec graph;
  ParameterStore store;
  std::vector<std::unique_ptr<Unit>> units;
};

inline std::vector<Microbatch> toy_rows(int microbatches, at::ScalarType type = at::kDouble) {
  std::vector<Microbatch> rows;
  for (int m = 0; m < microbatches; ++m) {
    const auto x = at::arange(4 * kWidth, at::TensorOptions().dtype(type)).reshape({4, kWidth});
    rows.push_back({{{"x", (x * 0.37 + m).sin()}}, 4 * m});
  }
  return rows;
}

}  // namespace orthant::test
