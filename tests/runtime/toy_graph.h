// A small graph with everything a pipeline meets: a value with four readers, a tied parameter, two losses, a unit that
// drops values. Its units run by programs, as those of the real models do.
//
//   x -> a -> h -> b -> hb -\
//              h -> c -> hc --> e (borrows a.weight) -> first_loss
//              h -> d -> hd ---> f (h, hd) -> second_loss
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <vector>

#include "orthant/ops/functions.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/executor.h"
#include "orthant/runtime/unit.h"

namespace orthant::test {

inline constexpr std::int64_t kWidth = 6;

// sum of inputs -> linear -> dropout -> tanh; a loss unit multiplies with the borrowed weight and takes the cross
// entropy of its last input, labels.
inline Body toy_body(const UnitSpec& unit) {
  Recorder r;
  const std::size_t summands = unit.inputs.size() - (unit.is_loss ? 1 : 0);
  Value y = r.rows(unit.inputs[0], kWidth);
  for (std::size_t i = 1; i < summands; ++i) y = ops::add(r, y, r.rows(unit.inputs[i], kWidth));
  y = ops::linear(r, y, {.weight = "weight", .bias = "bias", .out = kWidth});
  y = ops::activation(r, ops::dropout(r, y, 0.25, "dropout"), "tanh");
  if (!unit.borrowed.empty()) y = ops::linear(r, y, {.weight = unit.borrowed.front(), .out = kWidth});
  if (unit.is_loss) {
    y = ops::cross_entropy(r, y, r.field("labels", Sym::rows, Number::index), {.classes = kWidth});
  }
  r.output(y);
  return r.finish();
}

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
  graph.batch_fields = {{.name = "x", .shape = {4, kWidth}, .differentiable = false},
                        {.name = "labels", .shape = {4}, .dtype = DType::int64, .differentiable = false}};
  for (const char* name : {"h", "hb", "hc", "hd"}) graph.values.push_back({.name = name, .shape = {4, kWidth}});
  for (const char* name : {"first_loss", "second_loss"}) graph.values.push_back({.name = name});
  graph.units = {toy_unit("a", {"x"}, {"h"}),
                 toy_unit("b", {"h"}, {"hb"}),
                 toy_unit("c", {"h"}, {"hc"}),
                 toy_unit("d", {"h"}, {"hd"}),
                 toy_unit("e", {"hb", "hc", "labels"}, {"first_loss"}),
                 toy_unit("f", {"h", "hd", "labels"}, {"second_loss"})};
  graph.units[4].borrowed = {"a.weight"};
  graph.units[4].is_loss = graph.units[5].is_loss = true;
  graph.units[4].recomputable = graph.units[5].recomputable = false;
  for (auto& unit : graph.units) unit.body = toy_body(unit);
  return graph;
}

// Parameters and units of the toy graph in float64.
struct Toy {
  explicit Toy(GraphSpec spec, DType dtype = DType::float64, at::Device device = at::kCPU)
      : graph(std::move(spec)),
        store(graph, Mesh(), 0, Precision{dtype, dtype, dtype}, [device](std::int64_t n, at::ScalarType type) {
          return at::zeros({n}, at::TensorOptions().dtype(type).device(device));
        }) {
    store.initialise(7);
    units = build_units(store, tables);
  }

  GraphSpec graph;
  Tables tables;
  ParameterStore store;
  std::vector<std::unique_ptr<Unit>> units;
};

inline std::vector<Microbatch> toy_rows(int microbatches, at::ScalarType type = at::kDouble) {
  std::vector<Microbatch> rows;
  for (int m = 0; m < microbatches; ++m) {
    const auto x = at::arange(4 * kWidth, at::TensorOptions().dtype(type)).reshape({4, kWidth});
    const auto labels = (at::arange(4, at::kLong) * 5 + m).remainder(kWidth);
    rows.push_back({{{"x", (x * 0.37 + m).sin()}, {"labels", labels}}, 4 * m});
  }
  return rows;
}

}  // namespace orthant::test
