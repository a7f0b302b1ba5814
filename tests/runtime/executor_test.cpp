// The executor: bits do not depend on the schedule, recomputation or split backwards; sums are those of one autograd
// graph.
#include "orthant/runtime/executor.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "ops/dropout_factors.h"
#include "orthant/base/error.h"
#include "orthant/launch/activity_board.h"
#include "orthant/schedule/generators.h"
#include "orthant/schedule/lowering.h"
#include "orthant/schedule/validate.h"
#include "runtime/toy_graph.h"

namespace orthant {
namespace executor_test {

using test::Toy;

constexpr int kMicrobatches = 4;

std::vector<Action> actions_of(const GraphSpec& graph, const StageTable& table, const StageMap& map) {
  validate(table, map, graph);
  return lower(table, map, graph, 0);
}

std::vector<Action> one_stage_actions(const GraphSpec& graph) {
  return actions_of(graph, one_stage(kMicrobatches), on_one_pp_coordinate(even_stages(graph, 1)));
}

struct Numbers {
  std::map<std::string, at::Tensor> losses;
  std::vector<at::Tensor> gradients;  // per buffer
};

Numbers run(Toy& toy, const std::vector<Action>& actions, Recompute recompute = Recompute::none) {
  Executor executor(toy.graph, toy.units, recompute);
  toy.store.begin_step(std::vector<bool>(toy.graph.units.size(), false));
  Numbers numbers;
  numbers.losses = executor.train(actions, test::toy_rows(kMicrobatches),
                                  {.seed = 3,
                                   .step = 5,
                                   .loss_factors = {{"first_loss", at::scalar_tensor(0.5, at::kDouble)},
                                                    {"second_loss", at::scalar_tensor(0.125, at::kDouble)}}});
  EXPECT_TRUE(toy.store.complete_gradients().empty());
  for (const auto& buffer : toy.store.buffers()) {
    if (buffer->trainable()) numbers.gradients.push_back(buffer->gradient().clone());
  }
  return numbers;
}

void expect_same_bits(const Numbers& found, const Numbers& expected) {
  for (const auto& [name, loss] : expected.losses) EXPECT_TRUE(at::equal(found.losses.at(name), loss)) << name;
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
    EXPECT_TRUE(at::equal(found.gradients[i], expected.gradients[i])) << "buffer " << i;
  }
}

// What the rank said it does whenever a unit has written its outputs.
struct Said : UnitObserver {
  explicit Said(const launch::Activity& told) : activity(told) {}
  void wrote(int /*unit*/, int /*microbatch*/, Tensors& /*outputs*/) override { texts.push_back(activity.last()); }
  const launch::Activity& activity;
  std::vector<std::string> texts;
};

TEST(Executor, SaysWhichActionOfWhichStepItRuns) {
  Toy toy(test::toy_spec());
  const auto actions = one_stage_actions(toy.graph);
  std::vector<std::string> forwards;
  for (const auto& action : actions) {
    if (action.kind == ActionKind::forward) forwards.push_back(to_string(action, toy.graph));
  }
  Executor executor(toy.graph, toy.units, Recompute::none);
  launch::Activity activity;
  Said said(activity);
  executor.observe(&said);
  for (const int step : {5, 6}) {
    said.texts.clear();
    toy.store.begin_step(std::vector<bool>(toy.graph.units.size(), false));
    executor.train(actions, test::toy_rows(kMicrobatches), {.seed = 3, .step = step, .activity = &activity});
    std::vector<std::string> expected;
    for (const auto& text : forwards) expected.push_back("step " + std::to_string(step) + ", " + text);
    EXPECT_EQ(said.texts, expected);
    EXPECT_EQ(activity.last(), "step " + std::to_string(step) + ", " + to_string(actions.back(), toy.graph));
    const auto list = forward_actions(toy.graph);
    executor.evaluate(list, test::toy_rows(1).front(), {.step = step, .activity = &activity}, {});
    EXPECT_EQ(activity.last(),
              "evaluation after step " + std::to_string(step) + ", " + to_string(list.back(), toy.graph));
  }
  // Another list has texts of its own.
  const auto fewer = actions_of(toy.graph, one_stage(1), on_one_pp_coordinate(even_stages(toy.graph, 1)));
  executor.train(fewer, test::toy_rows(1), {.seed = 3, .step = 7, .activity = &activity});
  EXPECT_EQ(activity.last(), "step 7, " + to_string(fewer.back(), toy.graph));
}

// One graph over all units and microbatches, gradients by autograd alone.
TEST(Executor, GradientsAreThoseOfOneAutogradGraph) {
  Toy toy(test::toy_spec());
  const auto found = run(toy, one_stage_actions(toy.graph));
  std::map<std::string, at::Tensor> p;
  for (const auto& buffer : toy.store.buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      p[entry.parameter] = buffer->master_view(entry).clone().requires_grad_();
    }
  }
  at::Tensor total = at::zeros({}, at::kDouble);
  for (const auto& rows : test::toy_rows(kMicrobatches)) {
    nn::Pass pass;
    pass.seed = 3;
    pass.step = 5;
    pass.first_row = rows.first_row;
    const auto layer = [&](const std::string& u, const at::Tensor& x) {
      const auto y = at::linear(x, p.at(u + ".weight"), p.at(u + ".bias"));
      return (y * nn::dropout_factors(pass, u + ".dropout", 0.25, y.sizes(), y.options().requires_grad(false))).tanh();
    };
    const auto h = layer("a", rows.fields.at("x"));
    const auto first = at::linear(layer("e", layer("b", h) + layer("c", h)), p.at("a.weight"));
    const auto loss = [&](const at::Tensor& logits) {
      return at::cross_entropy_loss(logits, rows.fields.at("labels"), {}, at::Reduction::Sum);
    };
    total = total + loss(first) * 0.5 + loss(layer("f", h + layer("d", h))) * 0.125;
  }
  torch::autograd::backward({total}, {});
  for (const auto& buffer : toy.store.buffers()) {
    for (const auto& entry : buffer->layout().entries) {
      const auto difference = (buffer->gradient_view(entry) - p.at(entry.parameter).grad()).abs().max().item<double>();
      EXPECT_LT(difference, 1e-12) << entry.parameter;
    }
  }
  const auto weighted = found.losses.at("first_loss") * 0.5 + found.losses.at("second_loss") * 0.125;
  EXPECT_NEAR(weighted.item<double>(), total.item<double>(), 1e-12);
}

TEST(Executor, FourStagesOnOneRankHaveTheBitsOfOneStage) {
  Toy toy(test::toy_spec());
  const auto expected = run(toy, one_stage_actions(toy.graph));
  const auto map = on_one_pp_coordinate(named_stages(toy.graph, {{"a"}, {"b", "c"}, {"d"}, {"e", "f"}}));
  for (const auto& table : {gpipe(4, kMicrobatches), one_forward_one_backward(4, kMicrobatches)}) {
    expect_same_bits(run(toy, actions_of(toy.graph, on_one_pp_coordinate(table), map)), expected);
  }
}

TEST(Executor, ASplitBackwardHasTheBitsOfAWholeOne) {
  Toy toy(test::toy_spec());
  const auto expected = run(toy, one_stage_actions(toy.graph));
  StageTable table{.num_stages = 1, .num_microbatches = kMicrobatches, .actions = {{}}};
  for (int m = 0; m < kMicrobatches; ++m) {
    table.actions[0].push_back({0, StageKind::F, m});
    table.actions[0].push_back({0, StageKind::B, m});
  }
  for (int m = 0; m < kMicrobatches; ++m) table.actions[0].push_back({0, StageKind::W, m});
  expect_same_bits(run(toy, actions_of(toy.graph, table, on_one_pp_coordinate(even_stages(toy.graph, 1)))), expected);
}

TEST(Executor, RecomputationHasTheBitsOfKeeping) {
  Toy toy(test::toy_spec());
  const auto expected = run(toy, one_stage_actions(toy.graph));
  expect_same_bits(run(toy, one_stage_actions(toy.graph), Recompute::selective), expected);
  expect_same_bits(run(toy, one_stage_actions(toy.graph), Recompute::full), expected);
}

TEST(Executor, AFrozenUnitStopsTheBackward) {
  auto spec = test::toy_spec();
  for (const char* unit : {"a", "d"}) {
    for (auto& parameter : spec.units[static_cast<std::size_t>(spec.unit_index(unit))].parameters)
      parameter.trainable = false;
  }
  Toy frozen(spec);
  Toy whole(test::toy_spec());
  const auto actions = one_stage_actions(spec);
  run(frozen, actions);
  run(whole, one_stage_actions(whole.graph));
  EXPECT_FALSE(Executor(frozen.graph, frozen.units, Recompute::none).has_backward(0));
  EXPECT_FALSE(Executor(frozen.graph, frozen.units, Recompute::none).has_backward(3));
  for (const auto& buffer : frozen.store.buffers()) {
    if (!buffer->trainable()) continue;
    for (const auto& other : whole.store.buffers()) {
      for (const auto& entry : buffer->layout().entries) {
        const auto* same = other->layout().find(entry.parameter);
        if (same == nullptr) continue;
        EXPECT_TRUE(at::equal(buffer->gradient_view(entry), other->gradient_view(*same))) << entry.parameter;
      }
    }
  }
}

TEST(Executor, EvaluationKeepsNothingAndDropsNothing) {
  Toy toy(test::toy_spec());
  Executor executor(toy.graph, toy.units, Recompute::none);
  const auto rows = test::toy_rows(1)[0];
  const auto first = executor.evaluate(forward_actions(toy.graph), rows, {.seed = 1, .step = 1}, {"hb", "second_loss"});
  const auto again = executor.evaluate(forward_actions(toy.graph), rows, {.seed = 2, .step = 9}, {"hb", "second_loss"});
  ASSERT_EQ(first.size(), 2U);
  EXPECT_FALSE(first.at("hb").requires_grad());
  EXPECT_TRUE(at::equal(first.at("hb"), again.at("hb")));
  EXPECT_TRUE(at::equal(first.at("second_loss"), again.at("second_loss")));
}

TEST(Executor, AMissingFieldIsNamed) {
  Toy toy(test::toy_spec());
  Executor executor(toy.graph, toy.units, Recompute::none);
  try {
    executor.evaluate(forward_actions(toy.graph), {}, {}, {});
    FAIL() << "accepted";
  } catch (const DataError& error) {
    EXPECT_EQ(error.message(), "unit a reads the batch field \"x\", which the data does not have");
  }
}

}  // namespace executor_test
}  // namespace orthant
