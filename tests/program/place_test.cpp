// The exchanges that placing puts between the operations of a unit, in the order of the list.
#include <gtest/gtest.h>

#include "orthant/models/trimodal/config.h"
#include "program/compiled.h"

namespace orthant::place_test {

using test::Lines;
using test::Over;

// "gather normed -> normed.all" of every exchange of a list.
Lines exchanges(const Program& program, const std::vector<Operation>& list) {
  Lines found;
  for (const auto& line : test::lines(program, list, "start")) {
    std::string text = line.substr(std::string("start ").size());
    found.push_back(text.erase(text.find(" tp:"), 4));
  }
  return found;
}

Lines forward(const GraphSpec& graph, const Over& over, const std::string& unit) {
  const Program program = test::program_of(test::over(graph, over), unit);
  return exchanges(program, program.forward);
}

Lines backward(const GraphSpec& graph, const Over& over, const std::string& unit) {
  const Program program = test::program_of(test::over(graph, over), unit);
  return exchanges(program, program.both);
}

// Where a value of that name lies.
std::string place(const Program& program, const std::string& name) {
  for (const auto& value : program.values) {
    if (value.name == name) return to_string(value.at);
  }
  return "no " + name;
}

TEST(Place, OneRankExchangesNothing) {
  for (const auto& graph : {test::llama(), test::gpt2(), test::bert()}) {
    for (const auto& unit : graph.units) {
      EXPECT_EQ(forward(graph, {}, unit.name), Lines());
      EXPECT_EQ(backward(graph, {}, unit.name), Lines());
    }
  }
}

TEST(Place, ALlamaLayerSumsTwiceEachWay) {
  EXPECT_EQ(forward(test::llama(), test::kTp, "layers.0"), (Lines{"sum sum -> sum.summed", "sum sum2 -> sum2.summed"}));
  EXPECT_EQ(backward(test::llama(), test::kTp, "layers.0"),
            (Lines{"sum d.normed2.part -> d.normed2", "sum d.normed.part -> d.normed"}));
}

TEST(Place, WithSequenceParallelismItGathersAndScatters) {
  EXPECT_EQ(forward(test::llama(), test::kSp, "layers.0"),
            (Lines{"gather normed -> normed.all", "scatter product2 -> product2.own", "gather normed2 -> normed2.all",
                   "scatter product4 -> product4.own"}));
  EXPECT_EQ(backward(test::llama(), test::kSp, "layers.0"),
            (Lines{"gather d.sum2 -> d.product4", "scatter d.normed2.all.part -> d.normed2",
                   "gather d.sum -> d.product2", "scatter d.normed.all.part -> d.normed"}));
}

TEST(Place, RegatherGathersInputsOfColumnProductsBeforeTheirGradientTravels) {
  EXPECT_EQ(forward(test::llama(), test::kRegather, "layers.0"), forward(test::llama(), test::kSp, "layers.0"));
  EXPECT_EQ(
      backward(test::llama(), test::kRegather, "layers.0"),
      (Lines{"gather d.sum2 -> d.product4", "gather normed2 -> normed2.all", "scatter d.normed2.all.part -> d.normed2",
             "gather d.sum -> d.product2", "gather normed -> normed.all", "scatter d.normed.all.part -> d.normed"}));
}

// Values that a layer's products make are cut along their channels, and the sums of row products are summands.
TEST(Place, ValuesLieAsTheirParametersDo) {
  const Program program = test::program_of(test::over(test::llama(), test::kSp), "layers.0");
  EXPECT_EQ(place(program, "hidden"), "[tokens/tp, 8]");
  EXPECT_EQ(place(program, "normed"), "[tokens/tp, 8]");
  EXPECT_EQ(place(program, "statistics"), "[tokens/tp, 1]");
  EXPECT_EQ(place(program, "normed.all"), "[tokens, 8]");
  EXPECT_EQ(place(program, "turned"), "[tokens, 16/tp]");
  EXPECT_EQ(place(program, "attended"), "[tokens, 8/tp]");
  EXPECT_EQ(place(program, "lse"), "[rows, 4/tp, sequence]");
  EXPECT_EQ(place(program, "product2"), "[tokens, 8] +tp");
  EXPECT_EQ(place(program, "product2.own"), "[tokens/tp, 8]");
  EXPECT_EQ(place(program, "d.normed.all.part"), "[tokens, 8] +tp");
}

TEST(Place, ACutTableGivesSummands) {
  EXPECT_EQ(forward(test::llama(), test::kTp, "embed"), (Lines{"sum embedded -> embedded.summed"}));
  EXPECT_EQ(backward(test::llama(), test::kTp, "embed"), Lines());
  EXPECT_EQ(forward(test::llama(), test::kSp, "embed"), (Lines{"scatter embedded -> embedded.own"}));
  EXPECT_EQ(backward(test::llama(), test::kSp, "embed"), (Lines{"gather d.embedded.own -> d.embedded"}));
}

TEST(Place, LogitsAreGatheredUnlessTheLossIsParallel) {
  EXPECT_EQ(forward(test::llama(), test::kTp, "head"), (Lines{"gather product -> product.all"}));
  EXPECT_EQ(backward(test::llama(), test::kTp, "head"), (Lines{"sum d.normed.part -> d.normed"}));
  const Over cut{.degree = 2, .loss_parallel = true};
  EXPECT_EQ(forward(test::llama(), cut, "head"), Lines());
  const auto loss = [](const Over& over) {
    return test::program_of(test::over(test::llama(), over), "loss").forward.front().attributes.flag("cut");
  };
  EXPECT_TRUE(loss(cut));
  EXPECT_FALSE(loss(test::kTp));
}

TEST(Place, APoolerSumsItsFirstTokensWhereTokensAreCut) {
  const GraphSpec graph = trimodal_spec(test::small_trimodal(), test::small_work());
  EXPECT_EQ(forward(graph, test::kTp, "primary.pooler"), Lines());
  EXPECT_EQ(forward(graph, test::kSp, "primary.pooler"), (Lines{"sum first -> first.summed"}));
  EXPECT_EQ(backward(graph, test::kSp, "primary.pooler"), Lines());
  EXPECT_EQ(forward(graph, test::kSp, "fusion"), Lines());
}

// Post-norm: products read the layer's input and a norm's output themselves, and sums complete before they are added.
TEST(Place, APostNormLayerCompletesSumsInFrontOfItsNorms) {
  EXPECT_EQ(forward(test::bert(), test::kTp, "layers.0"),
            (Lines{"sum biased2 -> biased2.summed", "sum biased4 -> biased4.summed"}));
  EXPECT_EQ(backward(test::bert(), test::kTp, "layers.0"),
            (Lines{"sum d.normed.part -> d.normed", "sum d.hidden.part -> d.hidden"}));
  EXPECT_EQ(forward(test::bert(), test::kSp, "layers.0"),
            (Lines{"gather hidden -> hidden.all", "scatter product2 -> product2.own", "gather normed -> normed.all",
                   "scatter product4 -> product4.own"}));
  EXPECT_EQ(backward(test::bert(), test::kSp, "layers.0"),
            (Lines{"gather d.biased4 -> d.product4", "scatter d.normed.all.part -> d.normed",
                   "gather d.biased2 -> d.product2", "scatter d.hidden.all.part -> d.hidden"}));
}

// 4 ranks share 2 key/value heads: each has one query head and a copy of one key and value head.
TEST(Place, KeyValueHeadsAreHeldInCopies) {
  const Program program = test::program_of(test::over(test::llama(), {.degree = 4}), "layers.0");
  const UnitSizes sizes{.rows = 2, .sequence = 3, .degree = 4};
  for (const auto& value : program.values) {
    if (value.name == "turned") EXPECT_EQ(local_shape(value.at, sizes), (Shape{6, 2 + 2 + 2}));
    if (value.name == "attended") EXPECT_EQ(local_shape(value.at, sizes), (Shape{6, 2}));
  }
  EXPECT_EQ(place(program, "turned"), "[tokens, 16/tp]");
}

// Added once: by coordinate 0 to its summand, or by everybody to what a scatter left.
TEST(Place, BiasesOfRowProductsAreAddedOnce) {
  const auto once = [](const Over& over) {
    int found = 0;
    for (const auto& operation : test::program_of(test::over(test::gpt2(), over), "layers.0").forward) {
      found += operation.attributes.flag("once") ? 1 : 0;
    }
    return found;
  };
  EXPECT_EQ(once({}), 0);
  EXPECT_EQ(once(test::kTp), 2);
  EXPECT_EQ(once(test::kSp), 0);
}

}  // namespace orthant::place_test
