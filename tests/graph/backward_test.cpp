#include "orthant/graph/backward.h"

#include <gtest/gtest.h>

namespace orthant {
namespace backward_test {

using Flags = std::vector<bool>;

// table -> layer -> head (borrows the table) -> loss; the layer also writes a mask without gradient that a side reads.
GraphSpec small_graph() {
  GraphSpec graph;
  graph.name = "small";
  graph.batch_fields.resize(1);
  graph.batch_fields[0].name = "ids";
  for (const char* name : {"embedded", "hidden", "mask", "logits", "loss", "side"}) {
    graph.values.emplace_back().name = name;
  }
  graph.values[2].differentiable = false;
  const auto add = [&](std::string name, std::vector<std::string> inputs, std::vector<std::string> outputs) {
    UnitSpec& unit = graph.units.emplace_back();
    unit.name = std::move(name);
    unit.inputs = std::move(inputs);
    unit.outputs = std::move(outputs);
  };
  add("table", {"ids"}, {"embedded"});
  add("layer", {"embedded"}, {"hidden", "mask"});
  add("head", {"hidden"}, {"logits"});
  add("loss", {"logits", "ids"}, {"loss"});
  add("side", {"mask", "ids"}, {"side"});
  graph.units[0].parameters.emplace_back().name = "table.weight";
  graph.units[1].parameters.emplace_back().name = "layer.weight";
  graph.units[2].borrowed = {"table.weight"};
  graph.check();
  return graph;
}

TEST(Backward, ReachesEveryUnitAfterATrainableParameterAndNoValueWithoutDerivative) {
  const auto facts = backward_facts(small_graph());
  EXPECT_EQ(facts.units, (Flags{true, true, true, true, false}));
  EXPECT_EQ(facts.values, (Flags{true, true, false, true, true, false}));
}

TEST(Backward, StopsAtFrozenUnitsBelowTheFirstTrainableOne) {
  auto graph = small_graph();
  graph.units[0].parameters[0].trainable = false;
  auto facts = backward_facts(graph);
  EXPECT_EQ(facts.units, (Flags{false, true, true, true, false}));
  EXPECT_EQ(facts.values, (Flags{false, true, false, true, true, false}));
  graph.units[1].parameters[0].trainable = false;
  facts = backward_facts(graph);
  EXPECT_EQ(facts.units, Flags(5, false));
  EXPECT_EQ(facts.values, Flags(6, false));
}

TEST(Backward, ABorrowedTrainableParameterIsEnough) {
  auto graph = small_graph();
  graph.units[1].parameters.clear();
  graph.values[0].differentiable = false;
  const auto facts = backward_facts(graph);
  EXPECT_EQ(facts.units, (Flags{true, false, true, true, false}));
  EXPECT_EQ(facts.values, (Flags{false, false, false, true, true, false}));
}

}  // namespace backward_test
}  // namespace orthant
