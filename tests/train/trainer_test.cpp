#include "orthant/train/trainer.h"
#include "orthant/models/model_config.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/models/gpt2/config.h"
#include "orthant/models/presets.h"
#include "orthant/runtime/module_graph.h"
#include "orthant/runtime/unit.h"

namespace orthant {
namespace trainer_test {

TEST(Trainer, RefusesAGraphWithoutALoss) {
  const ModelConfig config = gpt2_preset("gpt2-tiny");
  const auto units = [&](ParameterStore& store, Tables& tables) { return build_units(store, tables); };
  EXPECT_EQ(
      error_text<ConfigError>([&] { Trainer(forward_spec(config, {.rows = 1, .sequence = 4}), units, Mesh(), {}); }),
      "graph \"gpt2\": none of its 4 units is a loss\n  fix: mark the unit that computes the loss with is_loss");
}

struct SquareImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return (linear(x)).square().sum(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(3, 2));
};
TORCH_MODULE(Square);

TEST(Trainer, AfterAnErrorInTheMiddleOfAListItGoesOnNoMore) {
  Graph graph;
  graph.add("loss", Square(), {"x"}, {"loss"});
  Trainer trainer(graph, Mesh(), {});
  const auto good = batch_of({{"x", at::ones({4, 3})}});
  trainer.step(good).get();
  EXPECT_THROW(trainer.evaluate({{"y", at::ones({4, 3})}}, {"loss"}), DataError);
  EXPECT_EQ(error_text<ConfigError>([&] { trainer.step(good); }),
            "an earlier step or evaluation of this trainer ended with an error\n"
            "  fix: connect the ranks anew, make a new trainer and load the last checkpoint");
}

TEST(Trainer, GivesAGlobalBatchsRowsToReplicasThatDivideIt) {
  Graph graph;
  graph.add("loss", Square(), {"x"}, {"loss"});
  TrainerOptions options;
  options.microbatches = 3;
  Trainer trainer(graph, Mesh(), options);
  EXPECT_EQ(trainer.own_rows(batch_of({{"x", at::ones({6, 3})}})).rows, 6);
  EXPECT_EQ(error_text<ConfigError>([&] { trainer.own_rows(batch_of({{"x", at::ones({4, 3})}})); }),
            "a batch of 4 rows for 1 replicas of 3 microbatches\n  fix: give a multiple of 3 rows");
}

// What the trainer lent to a user's module lives as long as the module does.
TEST(Trainer, AModuleOutlivesItsTrainer) {
  Square module;
  {
    Graph graph;
    graph.add("loss", module, {"x"}, {"loss"});
    Trainer trainer(graph, Mesh(), {});
    trainer.step(batch_of({{"x", at::ones({4, 3})}})).get();
  }
  EXPECT_TRUE(module->linear->weight.isfinite().all().item<bool>());
  module->forward(at::ones({4, 3})).backward();
  EXPECT_TRUE(module->linear->weight.grad().isfinite().all().item<bool>());
}

}  // namespace trainer_test
}  // namespace orthant
