// A model with everything a pipeline meets: values that skip stages, one with four readers on several stages, an
// integer value from the first stage to the last, two losses on different stages, a table that the first and the last
// stage share, perhaps with one in the middle, and sequences whose length differs between microbatches. Every product
// is one of orthant::nn, so that weight gradients can be deferred.
//
//   input_ids -> embed -> x, codes; x -> first -> a -> left -> b -> side (labels) -> side_loss
//   a, b -> middle -> c; a, c -> right -> d -> deep -> e; a, e -> mix -> f; f, x, codes -> head -> logits -> loss
#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "orthant/data/batch.h"
#include "orthant/nn/embedding.h"
#include "orthant/nn/linear.h"
#include "orthant/nn/loss.h"
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
  UnitSpec embed{.name = "embed", .kind = "branching.embed", .inputs = {"input_ids"}, .outputs = {"x", "codes"}};
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
                 head,
                 loss};
  graph.check();
  return graph;
}

class BranchingUnit : public Unit {
 public:
  explicit BranchingUnit(const UnitParameters& p) : kind_(p.spec().kind.substr(p.spec().kind.find('.') + 1)) {
    for (const char* name : {"weight", "bias", "back", "codes"}) named_[name] = p.find(name);
    tied_ = p.spec().borrowed.empty() ? nullptr : &p.named(p.spec().borrowed.front());
  }

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    if (kind_ == "embed") {
      return {nn::embedding({{inputs[0], named_.at("weight")}}, pass), inputs[0].remainder(kCodes)};
    }
    if (kind_ == "layer") return {layer(inputs, pass)};
    if (kind_ == "head") {
      auto& weight = tied_ == nullptr ? *named_.at("weight") : *tied_;
      const auto coded = nn::embedding({{inputs[2], named_.at("codes")}}, pass);
      return {nn::linear(inputs[0] + inputs[1] + coded, weight, nullptr, pass)};
    }
    const bool side = kind_ == "side";
    const auto logits = side ? nn::linear(inputs[0], *named_.at("weight"), nullptr, pass) : inputs[0];
    return {nn::cross_entropy(logits, inputs[1], {}, pass)};
  }

 private:
  at::Tensor layer(const Tensors& inputs, nn::Pass& pass) {
    auto x = inputs[0];
    for (std::size_t i = 1; i < inputs.size(); ++i) x = x + inputs[i];
    auto y = nn::linear(x, *named_.at("weight"), named_.at("bias"), pass).tanh();
    if (tied_ == nullptr) return y;
    return nn::linear(nn::linear(y, *tied_, nullptr, pass).tanh(), *named_.at("back"), nullptr, pass);
  }

  std::string kind_;
  std::map<std::string, nn::Parameter*> named_;
  nn::Parameter* tied_;
};

inline std::vector<std::unique_ptr<Unit>> branching_units(ParameterStore& store, Tables& /*tables*/) {
  std::vector<std::unique_ptr<Unit>> units(store.graph().units.size());
  for (int u = 0; u < static_cast<int>(units.size()); ++u) {
    if (store.runs(u)) units[static_cast<std::size_t>(u)] = std::make_unique<BranchingUnit>(store.unit(u));
  }
  return units;
}

// A split of that many stages in which users of the shared table are in the order of their pp coordinates when stage s
// is on coordinate s: ranks add their shares in that order, as one rank adds its uses.
inline std::vector<std::vector<std::string>> branching_split(int stages) {
  switch (stages) {
    case 2:
      return {{"embed", "first", "left", "middle"}, {"side", "right", "deep", "mix", "head", "loss"}};
    case 3:
      return {{"embed", "first", "left"}, {"middle", "side", "right"}, {"deep", "mix", "head", "loss"}};
    case 4:
      return {{"embed", "first", "left"}, {"middle", "side"}, {"right", "deep"}, {"mix", "head", "loss"}};
    case 6:
      return {{"embed", "first"}, {"left"}, {"middle", "side"}, {"right", "deep"}, {"mix"}, {"head", "loss"}};
    default:
      return {{"embed"}, {"first"}, {"left"}, {"middle", "side"}, {"right"}, {"deep"}, {"mix"}, {"head", "loss"}};
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
