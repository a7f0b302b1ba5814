// Small graphs with the shapes that schedules must cope with: chains, ties, skips, fan-out, branches and two losses.
#pragma once

#include <string>
#include <vector>

#include "orthant/graph/spec.h"

namespace orthant::test {

// Builds a graph unit by unit. Every unit writes one value called after it, "<unit>.out", unless it says otherwise.
class GraphMaker {
 public:
  explicit GraphMaker(std::string name) {
    graph_.name = std::move(name);
    ValueSpec& ids = graph_.batch_fields.emplace_back();
    ids.name = "ids";
    ids.shape = {2};
    ids.dtype = DType::int64;
    ids.differentiable = false;
  }

  GraphMaker& unit(const std::string& name, std::vector<std::string> inputs, bool trainable = true) {
    UnitSpec unit;
    unit.name = name;
    unit.kind = "test.unit";
    unit.inputs = std::move(inputs);
    unit.outputs = {name + ".out"};
    graph_.units.push_back(std::move(unit));
    if (trainable) parameter(name + ".weight", true);
    value(name + ".out", true);
    return *this;
  }

  // An output more for the last unit.
  GraphMaker& output(const std::string& name, bool differentiable = true) {
    graph_.units.back().outputs.push_back(name);
    value(name, differentiable);
    return *this;
  }

  // A parameter without gradient for the last unit.
  GraphMaker& frozen(const std::string& name) {
    parameter(name, false);
    return *this;
  }

  GraphMaker& borrow(const std::string& parameter) {
    graph_.units.back().borrowed.push_back(parameter);
    return *this;
  }

  GraphMaker& flops(double forward, double inputs, double weights) {
    graph_.units.back().cost.forward_flops = forward;
    graph_.units.back().cost.input_flops = inputs;
    graph_.units.back().cost.weight_flops = weights;
    return *this;
  }

  GraphMaker& loss(const std::string& name, std::vector<std::string> inputs) {
    unit(name, std::move(inputs), false);
    graph_.units.back().is_loss = true;
    graph_.values.back().shape = {};
    return *this;
  }

  GraphSpec done() {
    graph_.check();
    return graph_;
  }

 private:
  void value(const std::string& name, bool differentiable) {
    ValueSpec& value = graph_.values.emplace_back();
    value.name = name;
    value.shape = {2};
    value.differentiable = differentiable;
  }

  void parameter(const std::string& name, bool trainable) {
    ParameterSpec& parameter = graph_.units.back().parameters.emplace_back();
    parameter.name = name;
    parameter.shape = {2};
    parameter.trainable = trainable;
  }

  GraphSpec graph_;
};

// embed, layers.0 .. layers.n-1, head, loss.
inline GraphSpec chain(int layers, bool tied = false) {
  GraphMaker maker("chain");
  maker.unit("embed", {"ids"});
  std::string last = "embed.out";
  for (int i = 0; i < layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    maker.unit(name, {last}).flops(1, 1, 1);
    last = name + ".out";
  }
  maker.unit("head", {last}, !tied);
  if (tied) maker.borrow("embed.weight");
  return maker.loss("loss", {"head.out", "ids"}).done();
}

// The trunk's value goes to three consumers, the trunk's mask has no gradient, and two losses end the branches.
inline GraphSpec fan_out() {
  return GraphMaker("fan_out")
      .unit("trunk", {"ids"})
      .output("mask", false)
      .unit("left", {"trunk.out", "mask"})
      .unit("middle", {"trunk.out"})
      .unit("right", {"trunk.out", "mask", "left.out"})
      .loss("loss.left", {"left.out"})
      .loss("loss.right", {"right.out", "middle.out"})
      .done();
}

// Two encoders that do not know of each other, a fusion, and a skip over it; the head shares the first table.
inline GraphSpec branches() {
  return GraphMaker("branches")
      .unit("text.embed", {"ids"})
      .unit("text.layer", {"text.embed.out"})
      .unit("image.patch", {"ids"})
      .frozen("image.patch.position")
      .unit("image.layer", {"image.patch.out"})
      .output("image.pooled")
      .unit("fusion", {"text.layer.out", "image.layer.out"})
      .unit("head", {"fusion.out", "image.pooled", "text.embed.out"})
      .borrow("text.embed.weight")
      .loss("loss", {"head.out"})
      .done();
}

// A ladder: each unit of the way up reads its mirror of the way down.
inline GraphSpec skips() {
  return GraphMaker("skips")
      .unit("down.0", {"ids"})
      .unit("down.1", {"down.0.out"})
      .unit("bottom", {"down.1.out"})
      .unit("up.1", {"bottom.out", "down.1.out"})
      .unit("up.0", {"up.1.out", "down.0.out"})
      .loss("loss", {"up.0.out"})
      .done();
}

}  // namespace orthant::test
