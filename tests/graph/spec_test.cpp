#include "orthant/graph/spec.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error_text.h"

namespace orthant {
namespace spec_test {

ValueSpec value_of(std::string name, Shape shape, DType dtype = DType::float32) {
  ValueSpec value;
  value.name = std::move(name);
  value.shape = std::move(shape);
  value.dtype = dtype;
  return value;
}

ParameterSpec parameter_of(std::string name, Shape shape) {
  ParameterSpec parameter;
  parameter.name = std::move(name);
  parameter.shape = std::move(shape);
  return parameter;
}

UnitSpec unit_of(std::string name, std::vector<std::string> inputs, std::vector<std::string> outputs) {
  UnitSpec unit;
  unit.name = std::move(name);
  unit.inputs = std::move(inputs);
  unit.outputs = std::move(outputs);
  return unit;
}

// embed -> layer -> head -> loss, with the head's weight tied to the embedding's.
GraphSpec small_graph() {
  GraphSpec spec;
  spec.name = "small";
  spec.batch_fields = {value_of("ids", {2, 3}, DType::int64), value_of("labels", {2}, DType::int64)};
  spec.values = {value_of("hidden.0", {2, 3, 4}), value_of("hidden.1", {2, 3, 4}), value_of("logits", {2, 10}),
                 value_of("loss", {})};
  spec.units = {unit_of("embed", {"ids"}, {"hidden.0"}), unit_of("layer", {"hidden.0"}, {"hidden.1"}),
                unit_of("head", {"hidden.1", "hidden.0"}, {"logits"}), unit_of("loss", {"logits", "labels"}, {"loss"})};
  spec.units[0].parameters = {parameter_of("embed.weight", {10, 4})};
  spec.units[1].parameters = {parameter_of("layer.weight", {4, 4}), parameter_of("layer.bias", {4})};
  spec.units[2].borrowed = {"embed.weight"};
  spec.units[3].is_loss = true;
  return spec;
}

std::string refusal(const GraphSpec& spec) {
  return error_text<ConfigError>([&] { spec.check(); });
}

TEST(Shape, CountsItsElements) {
  EXPECT_EQ(num_elements({}), 1);
  EXPECT_EQ(num_elements({2, 3, 4}), 24);
  EXPECT_EQ(num_elements({2, 0}), 0);
}

TEST(Shape, RefusesSizesThatNoTensorHas) {
  EXPECT_EQ(error_text<ConfigError>([] { num_elements({4, -1}); }),
            "a tensor of shape [4, -1] cannot exist\n  fix: use sizes of at least 0 whose product is below 2^63");
  EXPECT_THROW(num_elements({std::numeric_limits<std::int64_t>::max(), 2}), ConfigError);
}

TEST(Recompute, NamesAreReadBack) {
  for (const auto mode : kRecomputeModes) EXPECT_EQ(parse_recompute(recompute_name(mode)), mode);
  EXPECT_EQ(recompute_name(Recompute::selective), "selective");
  EXPECT_EQ(error_text<ConfigError>([] { parse_recompute("selectve"); }),
            "unknown recompute mode \"selectve\"\n  fix: did you mean \"selective\"? (one of none, selective, full)");
}

TEST(GraphSpec, AcceptsAGraphWithTiedParametersAndASkip) {
  EXPECT_NO_THROW(small_graph().check());
}

TEST(GraphSpec, KnowsWhoWritesAndReadsAValue) {
  const GraphSpec spec = small_graph();
  EXPECT_EQ(spec.producer("ids"), -1);
  EXPECT_EQ(spec.producer("hidden.1"), 1);
  EXPECT_EQ(spec.consumers("hidden.0"), (std::vector<int>{1, 2}));
  EXPECT_EQ(spec.consumers("labels"), (std::vector<int>{3}));
  EXPECT_EQ(spec.consumers("loss"), std::vector<int>{});
  EXPECT_TRUE(spec.is_batch_field("ids"));
  EXPECT_FALSE(spec.is_batch_field("logits"));
  EXPECT_EQ(spec.value("ids").dtype, DType::int64);
  EXPECT_EQ(spec.value("logits").shape, (Shape{2, 10}));
  EXPECT_EQ(spec.losses(), (std::vector<std::string>{"loss"}));
  EXPECT_EQ(error_text<InternalError>([&] { spec.value("hiden"); }), "graph \"small\" has no value \"hiden\"");
  EXPECT_EQ(error_text<InternalError>([&] { spec.producer("hiden"); }),
            "graph \"small\": nobody writes value \"hiden\"");
}

TEST(GraphSpec, KnowsOwnersAndUsersOfParametersAndCountsTiedOnesOnce) {
  const GraphSpec spec = small_graph();
  EXPECT_EQ(spec.num_parameters(), 40 + 16 + 4);
  EXPECT_EQ(spec.unit("layer").num_parameters(), 20);
  EXPECT_EQ(spec.unit("head").num_parameters(), 0);
  EXPECT_EQ(spec.owner("layer.bias"), 1);
  EXPECT_EQ(spec.users("embed.weight"), (std::vector<int>{0, 2}));
  EXPECT_EQ(spec.users("layer.weight"), (std::vector<int>{1}));
  EXPECT_EQ(spec.parameter("layer.weight").shape, (Shape{4, 4}));
  EXPECT_EQ(error_text<InternalError>([&] { spec.parameter("layer.wait"); }),
            "graph \"small\" has no parameter \"layer.wait\"");
  EXPECT_THROW(spec.users("x"), InternalError);
}

TEST(GraphSpec, SuggestsTheNearestUnit) {
  const GraphSpec spec = small_graph();
  EXPECT_EQ(spec.unit_index("head"), 2);
  EXPECT_EQ(error_text<ConfigError>([&] { spec.unit("lyaer"); }),
            "graph \"small\" has no unit \"lyaer\"\n  fix: did you mean \"layer\"? (one of embed, layer, head, loss)");
}

TEST(GraphSpec, RefusesNamesUsedTwice) {
  GraphSpec spec = small_graph();
  spec.units[2].name = "layer";
  EXPECT_EQ(refusal(spec), "graph \"small\": two units are named \"layer\"\n  fix: rename one unit");
  spec = small_graph();
  spec.values[1].name = "hidden.0";
  EXPECT_EQ(refusal(spec), "graph \"small\": two values are named \"hidden.0\"\n  fix: rename one value");
  spec = small_graph();
  spec.batch_fields[1].name = "ids";
  EXPECT_EQ(refusal(spec), "graph \"small\": two values are named \"ids\"\n  fix: rename one batch field");
  spec = small_graph();
  spec.values[0].name = "labels";
  EXPECT_EQ(refusal(spec), "graph \"small\": two values are named \"labels\"\n  fix: rename one value");
  spec = small_graph();
  spec.units[2].parameters = {parameter_of("layer.bias", {4})};
  EXPECT_EQ(refusal(spec), "graph \"small\": two parameters are named \"layer.bias\"\n  fix: rename one parameter");
  spec = small_graph();
  spec.units[1].name = "";
  EXPECT_EQ(refusal(spec), "graph \"small\": a unit has no name\n  fix: name it");
}

TEST(GraphSpec, RefusesInputsThatNobodyWroteBefore) {
  GraphSpec spec = small_graph();
  spec.units[1].inputs = {"hidden.O"};
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"layer\" reads \"hidden.O\", which nobody writes\n  fix: "
            "did you mean \"hidden.0\"? (one of hidden.0, ids, labels)");
  spec = small_graph();
  std::swap(spec.units[1], spec.units[2]);
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"head\" reads \"hidden.1\", which no earlier unit writes\n  fix: "
            "list unit \"head\" after \"layer\", which writes it");
}

TEST(GraphSpec, RefusesOutputsThatAreNoValueOrHaveTwoWriters) {
  GraphSpec spec = small_graph();
  spec.units[1].outputs.push_back("extra");
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"layer\" writes \"extra\", which is no value of the graph\n  fix: "
            "add it to the values with its shape");
  spec = small_graph();
  spec.units[2].outputs.push_back("hidden.1");
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"head\" writes \"hidden.1\", which unit \"layer\" writes too\n  fix: "
            "give each output one writer");
  spec = small_graph();
  spec.units[1].outputs.push_back("labels");
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"layer\" writes batch field \"labels\"\n  fix: give the output a name of its own");
}

TEST(GraphSpec, RefusesAValueNobodyWrites) {
  GraphSpec spec = small_graph();
  spec.values.push_back(value_of("left", {2}));
  EXPECT_EQ(refusal(spec),
            "graph \"small\": no unit writes value \"left\"\n  fix: "
            "list it in the outputs of the unit that computes it, or remove it");
}

TEST(GraphSpec, RefusesABorrowedParameterWithoutAnEarlierOwner) {
  GraphSpec spec = small_graph();
  spec.units[0].borrowed = {"layer.weight"};
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"embed\" borrows parameter \"layer.weight\", which no earlier unit owns\n  fix: "
            "list the owner first, or let this unit own it");
}

TEST(GraphSpec, AcceptsAGraphWithoutALoss) {
  GraphSpec spec = small_graph();
  spec.units[3].is_loss = false;
  EXPECT_NO_THROW(spec.check());
  EXPECT_TRUE(spec.losses().empty());
}

TEST(GraphSpec, RefusesALossWithoutAnOutput) {
  GraphSpec spec = small_graph();
  spec.units[3].outputs.clear();
  EXPECT_EQ(refusal(spec),
            "graph \"small\", unit \"loss\" is a loss and has no output\n  fix: "
            "give it the value of the loss as its first output");
}

}  // namespace spec_test
}  // namespace orthant
