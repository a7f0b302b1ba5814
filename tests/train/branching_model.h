// A model with everything a pipeline meets: values that skip stages, one with four readers on several stages, an
// integer value from the first stage to the last, two losses on different stages, a table that the first and the last
// stage share, perhaps with one in the middle, and sequences whose length differs between microbatches. The unit that
// counts in integers is a module.
//
//   input_ids -> embed -> x; input_ids -> code -> codes; x -> first -> a -> left -> b -> side (labels) -> side_loss
//   a, b -> middle -> c; a, c -> right -> d -> deep -> e; a, e -> mix -> f; f, x, codes -> head -> logits -> loss
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/ops/functions.h"
#include "orthant/runtime/unit.h"
#include "orthant/train/trainer.h"

namespace orthant::test {

inline constexpr std::int64_t kHidden = 8;
inline constexpr std::int64_t kVocabulary = 11;
inline constexpr std::int64_t kCodes = 5;
inline constexpr std::int64_t kLength = 6;

inline ParameterSpec drawn_parameter(const std::string& name, Shape shape) {
  const bool decay = shape.size() > 1;
  return {.name = name, .shape = std::move(shape), .init = {Init::Kind::normal, 0.4}, .decay = decay};
}

// `inputs` are added, multiplied and bent.
inline UnitSpec layer_unit(const std::string& name, std::vector<std::string> inputs, const std::string& output) {
  UnitSpec unit{.name = name, .kind = "branching.layer", .inputs = std::move(inputs), .outputs = {output}};
  unit.parameters = {drawn_parameter(name + ".weight", {kHidden, kHidden}), drawn_parameter(name + ".bias", {kHidden})};
  unit.recomputable = true;
  unit.cost.forward_flops = unit.cost.input_flops = unit.cost.weight_flops = 1;
  return unit;
}

// Of a layer: inputs are added, multiplied and bent, and once more with a tied table.
inline Value branching_layer(Recorder& r, const UnitSpec& unit) {
  Value x = r.tokens(unit.inputs[0], kHidden);
  for (std::size_t i = 1; i < unit.inputs.size(); ++i) x = ops::add(r, x, r.tokens(unit.inputs[i], kHidden));
  const Value y = ops::activation(r, ops::linear(r, x, {.weight = "weight", .bias = "bias", .out = kHidden}), "tanh");
  if (unit.borrowed.empty()) return y;
  const Value wide = ops::linear(r, y, {.weight = unit.borrowed.front(), .out = kVocabulary});
  return ops::linear(r, ops::activation(r, wide, "tanh"), {.weight = "back", .out = kHidden});
}

inline Body branching_body(const UnitSpec& unit) {
  Recorder r;
  const auto ids = [&](const char* name) { return r.field(name, Sym::tokens, Number::index); };
  const ops::LinearParameters logits{.weight = "weight", .out = kVocabulary};
  if (unit.kind == "branching.embed") {
    r.output(ops::embedding(r, {{.ids = ids("input_ids"), .table = "weight", .entries = kVocabulary}}, kHidden));
  } else if (unit.kind == "branching.layer") {
    r.output(branching_layer(r, unit));
  } else if (unit.kind == "branching.head") {
    const Value sum = ops::add(r, r.tokens("f", kHidden), r.tokens("x", kHidden));
    const Value coded = ops::embedding(r, {{.ids = ids("codes"), .table = "codes", .entries = kCodes}}, kHidden);
    r.output(ops::linear(r, ops::add(r, sum, coded), logits));
  } else {
    const bool side = unit.kind == "branching.side";
    const Value x = r.tokens(unit.inputs[0], side ? kHidden : kVocabulary);
    const Value scores = side ? ops::linear(r, x, logits) : x;
    r.output(ops::cross_entropy(r, scores, ids("labels"), {.classes = kVocabulary}));
  }
  return r.finish();
}

// `users` of embed.weight: embed alone, head as well, or middle too.
inline GraphSpec branching_spec(int users) {
  GraphSpec graph;
  graph.name = "branching";
  for (const char* field : {"input_ids", "labels"}) {
    graph.batch_fields.push_back(
        {.name = field, .shape = {4, kLength}, .dtype = DType::int64, .differentiable = false});
  }
  const auto value = [&](const char* name, std::int64_t channels) {
    graph.values.push_back({.name = name, .shape = {4, kLength, channels}, .tokens_of = "input_ids"});
  };
  for (const char* name : {"x", "a", "b", "c", "d", "e", "f"}) value(name, kHidden);
  value("logits", kVocabulary);
  graph.values.push_back({.name = "codes",
                          .shape = {4, kLength},
                          .dtype = DType::int64,
                          .differentiable = false,
                          .tokens_of = "input_ids"});
  for (const char* name : {"side_loss", "loss"}) graph.values.push_back({.name = name});
  UnitSpec embed{.name = "embed", .kind = "branching.embed", .inputs = {"input_ids"}, .outputs = {"x"}};
  embed.parameters = {drawn_parameter("embed.weight", {kVocabulary, kHidden})};
  embed.parameters[0].table = true;
  UnitSpec side{.name = "side", .kind = "branching.side", .inputs = {"b", "labels"}, .outputs = {"side_loss"}};
  side.parameters = {drawn_parameter("side.weight", {kVocabulary, kHidden})};
  UnitSpec head{.name = "head", .kind = "branching.head", .inputs = {"f", "x", "codes"}, .outputs = {"logits"}};
  head.parameters = {drawn_parameter("head.codes", {kCodes, kHidden})};
  head.parameters[0].table = true;
  if (users > 1) {
    head.borrowed = {"embed.weight"};
  } else {
    head.parameters.push_back(drawn_parameter("head.weight", {kVocabulary, kHidden}));
  }
  const UnitSpec code{.name = "code", .kind = "branching.code", .inputs = {"input_ids"}, .outputs = {"codes"}};
  UnitSpec loss{.name = "loss", .kind = "branching.loss", .inputs = {"logits", "labels"}, .outputs = {"loss"}};
  side.is_loss = loss.is_loss = true;
  auto middle = layer_unit("middle", {"a", "b"}, "c");
  if (users == 3) {
    middle.parameters.push_back(drawn_parameter("middle.back", {kHidden, kVocabulary}));
    middle.borrowed = {"embed.weight"};
  }
  graph.units = {embed,
                 layer_unit("first", {"x"}, "a"),
                 layer_unit("left", {"a"}, "b"),
                 middle,
                 side,
                 layer_unit("right", {"a", "c"}, "d"),
                 layer_unit("deep", {"d"}, "e"),
                 layer_unit("mix", {"a", "e"}, "f"),
                 code,
                 head,
                 loss};
  for (auto& unit : graph.units) {
    unit.body = unit.kind == "branching.code" ? ops::module_body(unit) : branching_body(unit);
  }
  graph.check();
  return graph;
}

class CodeModule : public nn::ModuleCode {
 public:
  Tensors forward(const Tensors& inputs, const nn::Pass& /*pass*/) override { return {inputs[0].remainder(kCodes)}; }
};

inline std::vector<std::unique_ptr<Unit>> branching_units(ParameterStore& store, Tables& tables) {
  std::vector<std::unique_ptr<Unit>> units(store.graph().units.size());
  for (int u = 0; u < static_cast<int>(units.size()); ++u) {
    if (!store.runs(u)) continue;
    std::unique_ptr<nn::ModuleCode> code;
    if (store.graph().units[static_cast<std::size_t>(u)].runs_module()) code = std::make_unique<CodeModule>();
    units[static_cast<std::size_t>(u)] = std::make_unique<Unit>(store.unit(u), tables, std::move(code));
  }
  return units;
}

// What a layer computes, as a module: in its place for what a test does to it.
class LayerModule : public nn::ModuleCode {
 public:
  explicit LayerModule(const UnitParameters& p) : weight_(p["weight"]), bias_(p["bias"]) {}

  Tensors forward(const Tensors& inputs, const nn::Pass& /*pass*/) override {
    auto x = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) x = x + inputs[i];
    return {at::linear(x, leaf(weight_), leaf(bias_)).tanh()};
  }

 private:
  // Hands its gradient to the parameter.
  static at::Tensor leaf(nn::Parameter& parameter) {
    auto value = parameter.value.detach();
    if (!at::GradMode::is_enabled()) return value;
    value.requires_grad_();
    value.register_hook([&parameter](const at::Tensor& gradient) { nn::add_gradient(parameter, gradient); });
    return value;
  }

  nn::Parameter& weight_;
  nn::Parameter& bias_;
};

// The graph with one of its layers as a module.
inline GraphSpec with_module(GraphSpec graph, const std::string& layer) {
  auto& unit = graph.units[static_cast<std::size_t>(graph.unit_index(layer))];
  unit.body = ops::module_body(unit);
  return graph;
}

// Its units, that one by the code that `make` gives.
template <typename Make>
std::vector<std::unique_ptr<Unit>> units_with_module(ParameterStore& store, Tables& tables, const std::string& layer,
                                                     const Make& make) {
  auto units = branching_units(store, tables);
  const int index = store.graph().unit_index(layer);
  if (!store.runs(index)) return units;
  units[static_cast<std::size_t>(index)] = std::make_unique<Unit>(store.unit(index), tables, make(store.unit(index)));
  return units;
}

// A split of that many stages in which users of the shared table are in the order of their pp coordinates when stage s
// is on coordinate s: ranks add their shares in that order, as one rank adds its uses.
inline std::vector<std::vector<std::string>> branching_split(int stages) {
  switch (stages) {
    case 2:
      return {{"embed", "code", "first", "left", "middle"}, {"side", "right", "deep", "mix", "head", "loss"}};
    case 3:
      return {{"embed", "code", "first", "left"}, {"middle", "side", "right"}, {"deep", "mix", "head", "loss"}};
    case 4:
      return {{"embed", "code", "first", "left"}, {"middle", "side"}, {"right", "deep"}, {"mix", "head", "loss"}};
    case 6:
      return {{"embed", "code", "first"}, {"left"}, {"middle", "side"}, {"right", "deep"}, {"mix"}, {"head", "loss"}};
    default:
      return {{"embed", "code"}, {"first"}, {"left"}, {"middle", "side"},
              {"right"},         {"deep"},  {"mix"},  {"head", "loss"}};
  }
}

// 12 rows; the last columns of some have no targets, so that microbatches differ in length.
inline Batch branching_batch() {
  const auto ids = (at::arange(12 * kLength, at::kLong).reshape({12, kLength}) * 7 + 3).remainder(kVocabulary);
  const auto labels = (ids * 5 + 1).remainder(kVocabulary);
  for (int row = 0; row < 12; ++row) {
    const int used = row < 4 ? 4 : row < 8 ? 6 : 3;
    labels[row].narrow(0, used, kLength - used).fill_(kIgnoredLabel);
  }
  return batch_of({{"input_ids", ids}, {"labels", labels}});
}

inline TrainerOptions branching_options(int microbatches) {
  TrainerOptions options;
  options.seed = 5;
  options.microbatches = microbatches;
  options.lr.peak = 0.05;
  options.optimizer.clip = 0.5;
  options.pad_to_longest = true;
  options.loss_coefficients = {{"loss", 1.5}, {"side_loss", 0.25}};
  return options;
}

}  // namespace orthant::test
