// Bad steps of a test's own units: rows nobody reads, steps that follow each other, a backward that breaks, modules
// whose gradients autograd accumulates.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>

#include "train/branching_model.h"
#include "train/trainers_on_ranks.h"

namespace orthant {
namespace bad_step_units_test {

struct SquaresModule : torch::nn::Module {
  at::Tensor forward(const at::Tensor& h, const at::Tensor& y) { return (h - y).square().sum(); }
};

// A damaged table row that no token of the batch needs is in no loss and no gradient.
TEST(BadSteps, ADamagedRowThatNobodyReadsIsNoticed) {
  auto options = test::branching_options(2);
  options.poison = {parse_poison("parameter:rank=1,unit=head,step=2,value=inf,parameter=head.codes")};
  const auto ids = at::full({12, test::kLength}, 1, at::kLong);  // code 0, the first row, is never looked up
  const auto batch = batch_of({{"input_ids", ids}, {"labels", ids}});
  test::on_trainers(
      test::branching_spec(1), test::branching_units, Mesh::parse("dp=2"), options, [&](Trainer& trainer) {
        EXPECT_FALSE(trainer.step(trainer.own_rows(batch)).get().bad());
        const auto numbers = trainer.step(trainer.own_rows(batch)).get();
        EXPECT_TRUE(numbers.bad());
        EXPECT_TRUE(std::isfinite(numbers.grad_norm));
        EXPECT_EQ(trainer.explain_bad_step().text, "rank 1, unit head: parameter head.codes is not finite");
      });
}

// Two bad steps in a row, read one step late, are told apart.
TEST(BadSteps, AreToldApartWhenTheyFollowEachOther) {
  auto options = test::branching_options(2);
  options.poison = {parse_poison("activation:rank=0,unit=left,step=2,value=nan"),
                    parse_poison("activation:rank=1,unit=deep,step=3,value=inf,microbatch=1"),
                    parse_poison("loss:rank=1,unit=side,step=4,value=nan")};
  const auto batch = test::branching_batch();
  test::on_trainers(test::branching_spec(3), test::branching_units, Mesh::parse("dp=2"), options,
                    [&](Trainer& trainer) {
                      std::vector<PendingStep> steps;
                      std::vector<std::string> texts;
                      const auto read = [&](const PendingStep& step) {
                        if (step.get().bad()) texts.push_back(trainer.explain_bad_step().text);
                      };
                      for (int i = 0; i < 4; ++i) {
                        steps.push_back(trainer.step(trainer.own_rows(batch)));
                        if (i > 0) read(steps[static_cast<std::size_t>(i - 1)]);
                      }
                      read(steps.back());
                      EXPECT_EQ(texts, (std::vector<std::string>{"rank 0, unit left: its output is not finite",
                                                                 "rank 1, unit deep: its output is not finite",
                                                                 "rank 1, unit side: its loss is not finite"}));
                    });
}

// Its backward hands on infinities.
struct BrokenLayer : test::LayerModule {
  using test::LayerModule::LayerModule;
  Tensors forward(const Tensors& inputs, const nn::Pass& pass) override {
    auto x = inputs[0].clone();
    if (x.requires_grad()) {
      x.register_hook([](const at::Tensor& gradient) { return gradient * std::numeric_limits<double>::infinity(); });
    }
    return test::LayerModule::forward({x}, pass);
  }
};

// Branches: a gradient that breaks in one is not blamed on the units before it, nor on a later one beside it.
TEST(BadSteps, AUnitWithABadBackwardIsNamed) {
  const auto make = [](ParameterStore& store, Tables& tables) {
    return test::units_with_module(store, tables, "deep", [](const UnitParameters& parameters) {
      return std::make_unique<BrokenLayer>(parameters);
    });
  };
  auto options = test::branching_options(2);
  options.stages.split = test::branching_split(2);
  const auto batch = test::branching_batch();
  const auto graph = test::with_module(test::branching_spec(2), "deep");
  test::on_trainers(graph, make, Mesh::parse("pp=2"), options, [&](Trainer& trainer) {
    const auto before = trainer.weights_hash();
    EXPECT_TRUE(trainer.step(trainer.own_rows(batch)).get().bad());
    const auto bad = trainer.explain_bad_step();
    EXPECT_EQ(bad.text, "rank 1, unit deep: the gradients of its inputs are not finite");
    EXPECT_EQ(bad.parameter, "");
    EXPECT_EQ(trainer.weights_hash(), before);
  });
}

// Gradients that autograd accumulates start at zero: the last step's stay until they have been looked at.
TEST(BadSteps, OfAUsersModulesAreExplainedAfterTheNextStep) {
  const auto make_graph = [] {
    Graph graph;
    graph.add("body", torch::nn::Linear(4, 4), {"x"}, {"h"});
    graph.add("score", std::make_shared<SquaresModule>(), {"h", "y"}, {"loss"});
    return graph;
  };
  TrainerOptions options;
  options.lr.peak = 0.01;
  options.poison = {parse_poison("gradient:rank=1,unit=body,step=2,value=nan,parameter=body.bias")};
  const auto batch = batch_of({{"x", at::ones({4, 4})}, {"y", at::zeros({4, 4})}});
  for (const char* mesh : {"dp=2", "fsdp=2"}) {
    options.policy.zero = 2;
    test::on_module_trainers(make_graph, Mesh::parse(mesh), options, [&](Trainer& trainer) {
      trainer.step(trainer.own_rows(batch)).get();
      const auto before = trainer.weights_hash();
      const auto second = trainer.step(trainer.own_rows(batch));
      EXPECT_EQ(trainer.weights_hash(), before);
      const auto third = trainer.step(trainer.own_rows(batch));
      EXPECT_TRUE(second.get().bad());
      EXPECT_EQ(trainer.explain_bad_step().text, "rank 1, unit body: the gradient of body.bias is not finite");
      EXPECT_FALSE(third.get().bad());
    });
  }
}

}  // namespace bad_step_units_test
}  // namespace orthant
