// A user's modules as units: their parameters, what is refused, and that they train, resume and note unused parameters.
#include "orthant/runtime/module_graph.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>

#include "base/error_text.h"
#include "orthant/base/error.h"
#include "orthant/ops/functions.h"
#include "orthant/train/trainer.h"

namespace orthant {
namespace module_graph_test {

struct FirstImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return linear(x).tanh(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 6));
};
TORCH_MODULE(First);

// Returns a loss and something else; may leave a layer unused.
struct LastImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& y) {
    const auto out = used(x);
    return {(out - y).square().sum(), out};
  }
  torch::nn::Linear used = register_module("used", torch::nn::Linear(6, 2));
};
TORCH_MODULE(Last);

struct UnusedImpl : LastImpl {
  torch::nn::Linear spare = register_module("spare", torch::nn::Linear(6, 2));
};
TORCH_MODULE(Unused);

struct NormedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return norm(x); }
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(4));
};
TORCH_MODULE(Normed);

template <typename Head>
Graph graph_with(Head head) {
  at::manual_seed(3);
  Graph graph;
  graph.add("first", First(), {"x"}, {"h"});
  graph.add("last", head, {"h", "y"}, {"loss", "out"});
  return graph;
}

Batch rows() {
  const auto x = at::arange(32).reshape({8, 4}).to(at::kFloat).sin();
  return batch_of({{"x", x}, {"y", x.narrow(1, 0, 2).cos()}});
}

TEST(ModuleGraph, SpecListsTheModulesParameters) {
  const auto spec = graph_with(Last()).spec();
  EXPECT_EQ(spec.num_parameters(), 4 * 6 + 6 + 6 * 2 + 2);
  EXPECT_EQ(spec.batch_fields.size(), 2U);
  EXPECT_EQ(spec.losses(), std::vector<std::string>{"loss"});
  EXPECT_TRUE(spec.parameter("first.linear.weight").decay);
  EXPECT_FALSE(spec.parameter("first.linear.bias").decay);
}

TEST(ModuleGraph, TrainsLikeATorchLoopAndResumesExactly) {
  TrainerOptions options;
  options.lr.peak = 0.05;
  options.microbatches = 2;
  Trainer trainer(graph_with(Last()), Mesh(), options);
  const auto first = trainer.step(rows()).get().loss;
  for (int i = 0; i < 30; ++i) trainer.step(rows());
  const auto folder = (std::filesystem::temp_directory_path() / "orthant-module-graph-test").string();
  trainer.save(folder);
  Trainer resumed(graph_with(Last()), Mesh(), options);
  resumed.load(folder);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(resumed.steps_done(), 31);
  EXPECT_EQ(trainer.step(rows()).get().loss, resumed.step(rows()).get().loss);
  EXPECT_EQ(trainer.weights_hash(), resumed.weights_hash());
  EXPECT_LT(trainer.step(rows()).get().loss, 0.2 * first);
}

TEST(ModuleGraph, GradientsAreThoseOfAutograd) {
  auto first = First();
  auto last = Last();
  const auto batch = rows();
  auto [loss, out] = last(first(batch.fields.at("x")), batch.fields.at("y"));
  (loss / 8).backward();
  const auto expected = first->linear->weight.grad().clone();
  Graph graph;
  graph.add("first", first, {"x"}, {"h"}).add("last", last, {"h", "y"}, {"loss", "out"});
  Trainer trainer(graph, Mesh(), {});
  const auto found = trainer.gradients(batch).get();
  EXPECT_FLOAT_EQ(static_cast<float>(found.loss), (loss / 8).item<float>());
  for (const auto& buffer : trainer.parameters().buffers()) {
    if (const auto* entry = buffer->layout().find("first.linear.weight")) {
      EXPECT_TRUE(at::allclose(buffer->gradient_view(*entry), expected, 1e-6, 1e-7));
    }
  }
}

TEST(ModuleGraph, AnUnusedParameterIsNamedUnlessAllowed) {
  TrainerOptions options;
  Trainer strict(graph_with(Unused()), Mesh(), options);
  EXPECT_NE(error_text<ConfigError>([&] { strict.step(rows()); }).find("last.spare."), std::string::npos);
  options.allow_unused_parameters = true;
  Trainer lenient(graph_with(Unused()), Mesh(), options);
  EXPECT_GT(lenient.step(rows()).get().grad_norm, 0);
}

TEST(ModuleGraph, RefusesWhatWouldNotBeTheSameOnEveryMesh) {
  Graph graph;
  EXPECT_NE(error_text<ConfigError>([&] { graph.add("n", Normed(), {"x"}, {"h"}); }).find("running statistics"),
            std::string::npos);
  auto shared = First();
  Graph tied;
  tied.add("a", shared, {"x"}, {"h"}).add("b", shared, {"h"}, {"loss"});
  EXPECT_NE(error_text<ConfigError>([&] { tied.spec(); }).find("a.linear.weight and b.linear.weight are one tensor"),
            std::string::npos);
  Graph late;
  late.add("a", Last(), {"x", "y"}, {"out", "loss"});
  EXPECT_NE(error_text<ConfigError>([&] { late.spec(); }).find("name a unit's loss first"), std::string::npos);
  Graph narrow = graph_with(Last());
  Trainer trainer(narrow, Mesh(), {});
  EXPECT_NE(error_text<ConfigError>([&] { trainer.step(Batch{}); }).find("without fields"), std::string::npos);
}

// Draws, and notes whether autograd records.
struct NotedImpl : torch::nn::Module {
  explicit NotedImpl(std::vector<bool>* recorded) : recorded_(recorded) {}
  at::Tensor forward(const at::Tensor& x) {
    recorded_->push_back(at::GradMode::is_enabled());
    return linear(is_training() ? at::dropout(x, 0.5, true) : x);
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 6));

 private:
  std::vector<bool>* recorded_;
};
TORCH_MODULE(Noted);

TEST(ModuleGraph, AutogradRecordsOnceAndARecomputedForwardDrawsTheSame) {
  std::vector<std::uint64_t> hashes;
  for (const auto recompute : {Recompute::none, Recompute::full}) {
    std::vector<bool> recorded;
    at::manual_seed(3);
    Graph graph;
    graph.add("noted", Noted(&recorded), {"x"}, {"h"}).add("last", Last(), {"h", "y"}, {"loss", "out"});
    TrainerOptions options;
    options.recompute = recompute;
    options.microbatches = 2;
    Trainer trainer(graph, Mesh(), options);
    trainer.step(rows());
    const std::vector<bool> once = {true, true};
    const std::vector<bool> again = {false, true, false, true};  // forward, and again before each backward
    EXPECT_EQ(recorded, recompute == Recompute::none ? once : again);
    recorded.clear();
    trainer.evaluate(rows().fields, {"out"});
    EXPECT_EQ(recorded, std::vector<bool>{false});
    hashes.push_back(trainer.weights_hash());
  }
  EXPECT_EQ(hashes[0], hashes[1]);
}

TEST(ModuleGraph, AModuleThatReturnsFewerValuesThanItsUnitNamesIsNamed) {
  at::manual_seed(3);
  Graph graph;
  graph.add("first", First(), {"x"}, {"h", "more"}).add("last", Last(), {"h", "y"}, {"loss", "out"});
  Trainer trainer(graph, Mesh(), {});
  EXPECT_EQ(error_text<ConfigError>([&] { trainer.step(rows()); }), "unit first returned 1 values; its spec names 2");
}

Recorded recorded_linear() {
  return {.parameters = {{.name = "weight", .shape = {6, 4}, .init = {Init::Kind::normal, 0.1}}},
          .record = [](Recorder& r) { return ops::linear(r, r.rows("x", 4), {.weight = "weight", .out = 6}); }};
}

TEST(ModuleGraph, WhatIsRecordedMustFitTheNamesOfItsUnit) {
  const auto refusal = [](const Recorded& recorded, std::vector<std::string> inputs = {"x"},
                          std::vector<std::string> outputs = {"h"}) {
    return error_text<ConfigError>([&] { Graph().add("u", recorded, inputs, outputs); });
  };
  EXPECT_EQ(refusal({}), "unit u has no operations");
  EXPECT_EQ(refusal({.record = [](Recorder&) { return Value(); }}), "unit u: what it records gives no value");
  EXPECT_EQ(refusal(recorded_linear(), {"x", "y"}),
            "unit u records 1 inputs and names 2\n"
            "  fix: take each by tokens(), rows() or field(), in the order of their names");
  EXPECT_EQ(refusal(recorded_linear(), {"x"}, {"h", "k"}),
            "unit u is recorded and names 2 outputs\n  fix: name one: a recorded unit has one output");
  auto recorded = recorded_linear();
  recorded.parameters.push_back({.name = "bias", .shape = {6}});
  EXPECT_EQ(refusal(recorded),
            "unit u: no recorded operation uses its parameter bias\n  fix: leave it out, or use it by that name");
  recorded.parameters = {};
  EXPECT_EQ(refusal(recorded),
            "unit u uses a parameter \"weight\", which is not among its parameters\n"
            "  fix: add it to Recorded::parameters");
  recorded = recorded_linear();
  recorded.parameters.front().init.kind = Init::Kind::given;
  EXPECT_EQ(refusal(recorded),
            "unit u: nobody gives the first values of weight\n  fix: set its init to zeros, ones, normal or uniform");
}

TEST(ModuleGraph, ARecordedUnitNamesAnInputOfAnotherShape) {
  at::manual_seed(3);
  Graph graph;
  graph.add("first", recorded_linear(), {"x"}, {"h"}).add("last", Last(), {"h", "y"}, {"loss", "out"});
  Trainer trainer(graph, Mesh(), {});
  const auto text_of = [&](const at::Tensor& x) {
    auto batch = rows();
    batch.fields["x"] = x;
    Trainer anew(graph, Mesh(), {});
    return error_text<ConfigError>([&] { anew.step(batch); });
  };
  EXPECT_GT(trainer.step(rows()).get().loss, 0);
  EXPECT_EQ(text_of(at::ones({8, 5})),
            "unit first reads x as [rows, 4]; it is [8, 5]\n"
            "  fix: let its writer shape it so, or record the unit for what it gets");
  EXPECT_NE(text_of(at::ones({8, 2, 4})).find("unit first reads x as [rows, 4]; it is [8, 2, 4]"), std::string::npos);
}

TEST(ModuleGraph, AnInfiniteLossChangesNothing) {
  Trainer trainer(graph_with(Last()), Mesh(), {});
  trainer.step(rows());
  const auto before = trainer.weights_hash();
  auto batch = rows();
  batch.fields["y"] = at::full_like(batch.fields["y"], INFINITY);
  EXPECT_TRUE(std::isinf(trainer.step(batch).get().loss));
  EXPECT_EQ(trainer.weights_hash(), before);
  EXPECT_EQ(trainer.optimizer().num_updates(), 1);
}

}  // namespace module_graph_test
}  // namespace orthant
