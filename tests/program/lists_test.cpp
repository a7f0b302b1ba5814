// What is kept from forward to backward and deferred from B to W, by name, and where exchanges start and are waited
// for.
#include "orthant/program/lists.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "orthant/models/encoder_lm/config.h"
#include "program/compiled.h"

namespace orthant::lists_test {

using test::Lines;
using test::Over;

const Remake kFull = {.all = true};
const Remake kSelective = remake_of(Recompute::selective);

Lines kept(const GraphSpec& graph, const Over& over, const Remake& remake = {}) {
  const Program program = test::program_of(test::over(graph, over), "layers.0", remake);
  return test::names(program, program.kept);
}

Lines deferred(const GraphSpec& graph, const Over& over, const Remake& remake = {}) {
  const Program program = test::program_of(test::over(graph, over), "layers.0", remake);
  return test::names(program, program.deferred);
}

GraphSpec encoder_lm() {
  return encoder_lm_spec(test::small_encoder_lm(), test::small_work());
}

TEST(Lists, ALlamaLayerKeeps) {
  EXPECT_EQ(kept(test::llama(), {}), (Lines{"hidden", "normed", "statistics", "turned", "attended", "lse", "bits",
                                            "sum", "normed2", "statistics2", "product3"}));
  EXPECT_EQ(kept(test::llama(), {}, kSelective),
            (Lines{"hidden", "normed", "statistics", "turned", "sum", "normed2", "statistics2", "product3"}));
  EXPECT_EQ(kept(test::llama(), {}, kFull), Lines{"hidden"});
}

// Layers with experts make outputs of norms again, dense ones of the same model keep them. The gradients of weights
// that read them wait for neither parameters nor exchanges.
TEST(Lists, ALayerWithExpertsMakesNormsAgain) {
  const GraphSpec mixture = llama_spec(test::small_mixture(), test::small_work());
  const Program program = test::program_of(mixture, "layers.1");
  const Lines held = test::names(program, program.kept);
  EXPECT_TRUE(std::ranges::none_of(held, [](const auto& name) { return name.starts_with("normed"); }))
      << testing::PrintToString(held);
  EXPECT_EQ(test::lines(program, program.both, "rms_norm").size(), 2U);
  EXPECT_EQ(test::lines(program, program.input_part, "rms_norm").size(), 2U);
  EXPECT_EQ(test::lines(program, program.weight_part, "rms_norm").size(), 0U);
  const Lines dense = kept(mixture, {});
  EXPECT_EQ(std::ranges::count_if(dense, [](const auto& name) { return name.starts_with("normed"); }), 2);
}

TEST(Lists, UnderSequenceParallelismItKeepsGatheredInputsOrOwnOnes) {
  EXPECT_EQ(kept(test::llama(), test::kSp), (Lines{"hidden", "statistics", "turned", "attended", "lse", "bits", "sum",
                                                   "statistics2", "product3", "normed.all", "normed2.all"}));
  EXPECT_EQ(kept(test::llama(), test::kRegather), (Lines{"hidden", "normed", "statistics", "turned", "attended", "lse",
                                                         "bits", "sum", "normed2", "statistics2", "product3"}));
  EXPECT_EQ(kept(test::llama(), test::kRegather, kFull), Lines{"hidden"});
}

TEST(Lists, OtherFamiliesKeep) {
  EXPECT_EQ(kept(test::gpt2(), {}), (Lines{"hidden", "normed", "statistics", "biased", "attended", "lse", "bits", "sum",
                                           "normed2", "statistics2", "biased3"}));
  EXPECT_EQ(kept(test::gpt2(), {}, kSelective),
            (Lines{"hidden", "normed", "statistics", "biased", "sum", "normed2", "statistics2", "biased3"}));
  // Post-norm: a product's input is the layer's own, and both norms' outputs are read or handed on.
  const Lines post_norm = {"hidden", "attention_mask", "biased",     "attended", "lse",  "bits",
                           "sum",    "normed",         "statistics", "biased3",  "sum2", "statistics2"};
  EXPECT_EQ(kept(test::bert(), {}), post_norm);
  EXPECT_EQ(kept(test::bert(), {}, kFull), (Lines{"hidden", "attention_mask"}));
  Lines without_mask = post_norm;
  std::erase(without_mask, "attention_mask");
  EXPECT_EQ(kept(encoder_lm(), {}), without_mask);
}

TEST(Lists, OperationsByNameAreMadeAgain) {
  EXPECT_EQ(kept(test::llama(), {}, {.operations = {"rms_norm"}}),
            (Lines{"hidden", "turned", "attended", "lse", "bits", "sum", "product3"}));
  // Activations are made again anyway, by their name or their kind.
  EXPECT_EQ(kept(test::llama(), {}, {.operations = {"activation"}}), kept(test::llama(), {}));
  EXPECT_EQ(kept(test::llama(), {}, {.operations = {"swiglu"}}), kept(test::llama(), {}));
  EXPECT_EQ(kept(test::llama(), {}, {.operations = {"rms_norm", "product"}}),
            (Lines{"hidden", "turned", "attended", "lse", "bits", "sum"}));
  EXPECT_EQ(kept(test::gpt2(), {}, {.operations = {"layer_norm", "attention"}}),
            (Lines{"hidden", "biased", "sum", "biased3"}));
}

// Rotation writes over its input, and biases and sums are one operation with the product before them.
TEST(Lists, WhatIsOneWithItsInputIsMadeAgainTogetherWithIt) {
  for (const char* name : {"rotary", "add", "bias", "dropout"}) {
    EXPECT_EQ(kept(test::llama(), {}, {.operations = {name}}), kept(test::llama(), {})) << name;
    EXPECT_EQ(kept(test::gpt2(), {}, {.operations = {name}}), kept(test::gpt2(), {})) << name;
  }
  EXPECT_EQ(kept(test::gpt2(), {}, {.operations = {"product", "bias"}}),
            (Lines{"hidden", "normed", "statistics", "attended", "lse", "bits", "sum", "normed2", "statistics2"}));
  const Lines both = kept(test::llama(), {}, {.operations = {"rotary", "product"}});
  EXPECT_EQ(both,
            (Lines{"hidden", "normed", "statistics", "attended", "lse", "bits", "sum", "normed2", "statistics2"}));
}

// Input and gradient of every product, and what norms read. The same whatever is made again, since B has made it; the
// activation in front of a product is made again in W.
TEST(Lists, LayersDefer) {
  EXPECT_EQ(deferred(test::llama(), {}),
            (Lines{"hidden", "normed", "statistics", "attended", "sum", "normed2", "statistics2", "product3", "d.sum2",
                   "d.product3", "d.normed2", "d.sum", "d.product", "d.normed"}));
  for (const Remake& remake : {kSelective, kFull, Remake{.operations = {"rms_norm"}}}) {
    EXPECT_EQ(deferred(test::llama(), {}, remake), deferred(test::llama(), {}));
  }
  EXPECT_EQ(deferred(test::gpt2(), {}),
            (Lines{"hidden", "normed", "statistics", "attended", "sum", "normed2", "statistics2", "biased3",
                   "d.biased4", "d.biased3", "d.normed2", "d.biased2", "d.biased", "d.normed"}));
  const Lines post_norm = {"hidden",      "attended",  "sum",       "normed",    "statistics", "biased3",   "sum2",
                           "statistics2", "d.normed2", "d.biased4", "d.biased3", "d.normed'",  "d.biased2", "d.biased"};
  EXPECT_EQ(deferred(test::bert(), {}), post_norm);
  EXPECT_EQ(deferred(encoder_lm(), {}), post_norm);
}

// Gradients of row products are deferred gathered; inputs of column products, too, unless they are gathered again.
TEST(Lists, LayersDeferUnderSequenceParallelism) {
  EXPECT_EQ(deferred(test::llama(), test::kSp),
            (Lines{"hidden", "statistics", "attended", "sum", "statistics2", "product3", "normed.all", "normed2.all",
                   "d.product4", "d.product3", "d.normed2", "d.product2", "d.product", "d.normed"}));
  EXPECT_EQ(deferred(test::llama(), test::kRegather),
            (Lines{"hidden", "normed", "statistics", "attended", "sum", "normed2", "statistics2", "product3",
                   "d.product4", "d.product3", "d.normed2", "d.product2", "d.product", "d.normed"}));
}

TEST(Lists, TablesAndHeadsKeepWhatTheyNeed) {
  const auto names = [](const GraphSpec& graph, const char* unit) {
    const Program program = test::program_of(test::over(graph, {}), unit);
    return test::names(program, program.kept);
  };
  EXPECT_EQ(names(test::llama(), "embed"), Lines{"input_ids"});
  EXPECT_EQ(names(test::llama(), "head"), (Lines{"hidden", "normed", "statistics"}));
  EXPECT_EQ(names(test::llama(), "loss"), (Lines{"logits", "labels", "lse"}));
  EXPECT_EQ(names(test::bert(), "head"), (Lines{"hidden", "biased", "normed", "statistics"}));
}

// So bits stay what they are: what is made again changes no operation of forward.
TEST(Lists, ForwardIsTheSameWhateverIsMadeAgain) {
  for (const auto& graph : {test::llama(), test::gpt2(), test::bert(), encoder_lm()}) {
    for (const Over& over : {Over{}, test::kTp, test::kSp, test::kRegather}) {
      const GraphSpec placed = test::over(graph, over);
      const Program none = test::program_of(placed, "layers.0");
      for (const auto& name : remade_names()) {
        for (const auto& other : remade_names()) {
          const Program program = test::program_of(placed, "layers.0", {.operations = {name, other}});
          EXPECT_EQ(test::lines(program, program.forward), test::lines(none, none.forward)) << name << " " << other;
        }
      }
    }
  }
}

// The weight's product runs while the gradient of its input travels.
TEST(Lists, ExchangesStartBehindTheirMakerAndAreWaitedForInFrontOfTheirReader) {
  const Program program = test::program_of(test::over(test::llama(), test::kTp), "layers.0");
  const Lines lines = test::lines(program, program.both);
  const auto at = std::ranges::find(lines, "start sum tp: d.normed2.part -> d.normed2");
  ASSERT_NE(at, lines.end());
  EXPECT_EQ(*(at - 1), "d.normed2.part = product_back(d.product3; gate_up)");
  EXPECT_EQ(*(at + 1), "product_weight(d.product3, normed2; gate_up)");
  EXPECT_EQ(*(at + 2), "wait d.normed2");
  EXPECT_TRUE((at + 3)->starts_with("d.sum.summed = rms_norm_back(d.normed2, "));
}

// What a list adds to parameters: operation, parameters and what they are made from.
struct Addition {
  std::string name;
  std::vector<int> in;
  std::vector<int> parameters;
  friend auto operator<=>(const Addition&, const Addition&) = default;
};

std::vector<Addition> additions(const std::vector<Operation>& list) {
  std::vector<Addition> found;
  for (const auto& operation : list) {
    const bool norm = operation.name.ends_with("_norm_back");
    if (!norm && !operation.name.ends_with("_weight")) continue;
    std::vector<int> in = operation.in;
    if (norm) in.resize(3);  // the rest is of the input's gradient
    found.push_back({operation.name, in, operation.parameters});
  }
  std::ranges::sort(found);
  return found;
}

TEST(Lists, WAddsWhatBothWouldFromTheSameValues) {
  for (const auto& graph : {test::llama(), test::gpt2(), test::bert(), encoder_lm()}) {
    for (const Over& over : {Over{}, test::kTp, test::kSp, test::kRegather}) {
      const GraphSpec placed = test::over(graph, over);
      for (const Remake& remake : {Remake{}, kSelective, kFull}) {
        for (const auto& unit : placed.units) {
          const Program program = test::program_of(placed, unit.name, remake);
          EXPECT_EQ(additions(program.both), additions(program.weight_part)) << graph.name << " " << unit.name;
        }
      }
    }
  }
}

TEST(Lists, AnEvaluationDropsAndKeepsNothing) {
  for (const auto& graph : {test::gpt2(), test::bert(), encoder_lm()}) {
    for (const auto& unit : graph.units) {
      const Program training = compile_unit(graph, unit, {.needs = std::vector<bool>(unit.inputs.size())});
      const Program program = compile_unit(graph, unit, {.training = false});
      EXPECT_TRUE(program.kept.empty());
      EXPECT_FALSE(program.has_backward());
      for (const auto& operation : program.forward) {
        EXPECT_NE(operation.name, "dropout") << unit.name;
        if (operation.attributes.find("p") != nullptr) EXPECT_EQ(operation.attributes.number("p"), 0) << unit.name;
      }
      const bool drops = std::ranges::any_of(training.forward, [](const Operation& operation) {
        return operation.attributes.find("p") != nullptr && operation.attributes.number("p") > 0;
      });
      EXPECT_EQ(drops, unit.name == "embed" || unit.name.starts_with("layers.")) << unit.name;
    }
  }
}

}  // namespace orthant::lists_test
