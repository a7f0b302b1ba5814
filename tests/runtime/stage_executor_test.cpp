// What the executor of one stage refuses, and what its peers are told when it fails.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error_text.h"
#include "runtime/toy_graph.h"
#include "train/branching_model.h"
#include "train/trainers_on_ranks.h"

namespace orthant {
namespace stage_executor_test {

TEST(StageExecutor, WithoutLinksASendIsRefused) {
  test::Toy toy(test::toy_spec());
  Executor executor(toy.graph, toy.units, Recompute::none);
  const std::vector<Action> list = {{.kind = ActionKind::forward, .unit = 0, .microbatch = 0},
                                    {.kind = ActionKind::send, .value = 0, .peer = 1, .microbatch = 0}};
  const auto text = error_text<InternalError>([&] { executor.train(list, test::toy_rows(1), {}); });
  EXPECT_NE(text.find("send h m0 -> 1: this executor has no links to other stages"), std::string::npos) << text;
}

// A layer, but for one microbatch.
class FailingLayer : public test::LayerModule {
 public:
  FailingLayer(const UnitParameters& parameters, std::int64_t first_row, std::function<Tensors(Tensors)> fail)
      : LayerModule(parameters), first_row_(first_row), fail_(std::move(fail)) {}

  Tensors forward(const Tensors& inputs, const nn::Pass& pass) override {
    auto outputs = LayerModule::forward(inputs, pass);
    return pass.first_row == first_row_ ? fail_(std::move(outputs)) : outputs;
  }

 private:
  std::int64_t first_row_;
  std::function<Tensors(Tensors)> fail_;
};

// What every rank of two stages throws in a step of four microbatches when a unit fails in the third.
std::vector<std::string> texts_when(const std::string& unit, const std::function<Tensors(Tensors)>& fail) {
  const auto graph = test::with_module(test::branching_spec(2), unit);
  const auto mesh = Mesh::parse("pp=2");
  auto options = test::branching_options(4);
  options.stages.split = test::branching_split(2);
  const auto make_units = [&](ParameterStore& store, Tables& tables) {
    return test::units_with_module(store, tables, unit, [&](const UnitParameters& parameters) {
      return std::make_unique<FailingLayer>(parameters, /*first_row=*/6, fail);
    });
  };
  const auto groups = trainer_groups(graph, mesh, options);
  std::vector<std::string> texts(2);
  comm::try_thread_ranks(2, [&](int rank, comm::Store store) {
    auto own = options;
    own.communicator =
        std::make_shared<comm::Communicator>(mesh, rank, store, test::quick_comm(), groups.axes, groups.subsets);
    try {
      Trainer(graph, make_units, mesh, own).step(test::branching_batch()).get();
    } catch (const std::exception& error) {
      texts[static_cast<std::size_t>(rank)] = error.what();
    }
  });
  return texts;
}

// Which microbatch it is depends on what was on its way when the stage failed: the third, or one before it.
void expect_waits(const std::string& text, const std::string& who, const std::string& what, const std::string& from) {
  EXPECT_TRUE(text.starts_with(who + ": waiting for " + what + " of microbatch ")) << text;
  EXPECT_NE(text.find(" from " + from + ": "), std::string::npos) << text;
}

TEST(StageExecutor, AStageThatFailsIsNamedByTheOneThatWaitsForIt) {
  const auto fail = [](Tensors) -> Tensors { throw DataError("a bad row"); };
  const auto later = texts_when("right", fail);
  EXPECT_EQ(later[1], "a bad row");
  expect_waits(later[0], "rank 0 stage 0", "gradients", "rank 1");
  const auto earlier = texts_when("left", fail);
  EXPECT_EQ(earlier[0], "a bad row");
  expect_waits(earlier[1], "rank 1 stage 1", "activations", "rank 0");
}

TEST(StageExecutor, AValueOfAnotherShapeThanItsSpecIsNamed) {
  const auto narrow = texts_when("middle", [](Tensors outputs) -> Tensors { return {outputs[0].narrow(2, 0, 7)}; });
  EXPECT_EQ(narrow[0], "send c m2 -> 1: it is Float [3, 6, 7] and not Float [3, 6, 8]");
  expect_waits(narrow[1], "rank 1 stage 1", "activations", "rank 0");
  const auto wide = texts_when("middle", [](Tensors outputs) -> Tensors { return {outputs[0].to(at::kDouble)}; });
  EXPECT_EQ(wide[0], "send c m2 -> 1: it is Double [3, 6, 8] and not Float [3, 6, 8]");
}

}  // namespace stage_executor_test
}  // namespace orthant
