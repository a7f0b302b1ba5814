// How many microbatches a stage really keeps, counted by the memory that its units hold, and that outputs are gone once
// they were sent.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <atomic>

#include "orthant/ops/functions.h"
#include "orthant/runtime/unit.h"
#include "orthant/schedule/grid.h"
#include "train/trainers_on_ranks.h"

namespace orthant {
namespace pipeline_memory_test {

constexpr std::int64_t kWidth = 4;
constexpr int kMicrobatches = 6;

// Tensors that one rank holds.
struct Live {
  std::atomic<int> now = 0;
  std::atomic<int> peak = 0;
  std::vector<int> at_backward;  // how many there were when a backward came by

  void add() {
    const int count = ++now;
    peak = std::max(peak.load(), count);
  }
};

// A copy that counts for as long as anybody holds it.
struct CountedCopy : torch::autograd::Function<CountedCopy> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, std::int64_t live_address) {
    ctx->saved_data["live"] = live_address;
    auto* live = reinterpret_cast<Live*>(live_address);
    auto* memory = new float[static_cast<std::size_t>(x.numel())];
    live->add();
    const auto gone = [live, memory](void*) {
      delete[] memory;
      --live->now;
    };
    return at::from_blob(memory, x.sizes(), gone, at::kFloat).copy_(x.detach());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& gradients) {
    auto* live = reinterpret_cast<Live*>(ctx->saved_data["live"].toInt());
    live->at_backward.push_back(live->now);
    return {gradients[0], {}};
  }
};

at::Tensor counted(const at::Tensor& x, Live& live) {
  return CountedCopy::apply(x, reinterpret_cast<std::int64_t>(&live));
}

// Of one rank: inputs of products, which they keep for the weight's gradient, and outputs, which nothing keeps.
struct RankMemory {
  Live inputs;
  Live outputs;
};

class CopyModule : public nn::ModuleCode {
 public:
  explicit CopyModule(Live& live) : live_(live) {}
  Tensors forward(const Tensors& inputs, const nn::Pass& /*pass*/) override { return {counted(inputs[0], live_)}; }

 private:
  Live& live_;
};

class SquaresModule : public nn::ModuleCode {
 public:
  Tensors forward(const Tensors& inputs, const nn::Pass& /*pass*/) override { return {inputs[0].square().sum()}; }
};

Body product_body() {
  Recorder r;
  r.output(ops::activation(r, ops::linear(r, r.rows("x", kWidth), {.weight = "weight", .out = kWidth}), "tanh"));
  return r.finish();
}

// Of every stage a copy of its input, tanh(x W) and a copy of that; the last sums squares instead.
GraphSpec chain_spec(int stages) {
  GraphSpec graph;
  graph.name = "counted";
  graph.batch_fields = {{.name = "x", .shape = {2, kWidth}, .differentiable = false}};
  std::string last = "x";
  const auto add = [&](const std::string& name, const char* kind) {
    UnitSpec unit{.name = name, .kind = kind, .inputs = {last}, .outputs = {name + ".value"}};
    unit.is_loss = unit.kind == "loss";
    unit.body = ops::module_body(unit);
    last = unit.outputs.front();
    graph.values.push_back({.name = last, .shape = unit.is_loss ? Shape{} : Shape{2, kWidth}});
    graph.units.push_back(std::move(unit));
  };
  for (int s = 0; s < stages; ++s) {
    const auto name = "stage" + std::to_string(s);
    add(name + ".in", "in");
    add(name, "product");
    auto& product = graph.units.back();
    product.parameters = {{.name = name + ".weight", .shape = {kWidth, kWidth}, .init = {Init::Kind::normal, 0.5}}};
    product.cost.forward_flops = product.cost.input_flops = product.cost.weight_flops = 1;
    product.body = product_body();
    add(name + ".out", s + 1 == stages ? "loss" : "out");
  }
  graph.check();
  return graph;
}

struct Measured {
  std::vector<std::unique_ptr<RankMemory>> ranks;
  StageTable table;
};

// Two steps: the second must not find anything of the first.
Measured measure(int pp, const std::string& schedule) {
  Measured measured;
  for (int rank = 0; rank < pp; ++rank) measured.ranks.push_back(std::make_unique<RankMemory>());
  TrainerOptions options;
  options.microbatches = kMicrobatches;
  options.stages.schedule = schedule;
  const auto mesh = Mesh(Degrees{{Axis::pp, pp}});
  const auto graph = chain_spec(schedule == "zbv" || schedule == "interleaved" ? 2 * pp : pp);
  for (std::size_t u = 0; u < graph.units.size(); u += 3) {
    options.stages.split.push_back({graph.units[u].name, graph.units[u + 1].name, graph.units[u + 2].name});
  }
  const auto pipeline = trainer_pipeline(graph, mesh, options);
  measured.table = pipeline.table;
  const auto make_units = [&](ParameterStore& store, Tables& tables) {
    std::vector<std::unique_ptr<Unit>> units(graph.units.size());
    for (std::size_t u = 0; u < units.size(); ++u) {
      if (!store.runs(static_cast<int>(u))) continue;
      auto& memory = *measured.ranks[static_cast<std::size_t>(pipeline.unit_pp_coordinates()[u])];
      const std::string& kind = graph.units[u].kind;
      std::unique_ptr<nn::ModuleCode> code;
      if (kind == "loss") {
        code = std::make_unique<SquaresModule>();
      } else if (kind != "product") {
        code = std::make_unique<CopyModule>(kind == "in" ? memory.inputs : memory.outputs);
      }
      units[u] = std::make_unique<Unit>(store.unit(static_cast<int>(u)), tables, std::move(code));
    }
    return units;
  };
  test::on_trainers(graph, make_units, mesh, options, [](Trainer& trainer) {
    const auto batch = batch_of({{"x", at::ones({2 * kMicrobatches, kWidth})}});
    for (int step = 0; step < 2; ++step) trainer.step(batch).get();
  });
  for (const auto& rank : measured.ranks) {
    EXPECT_EQ(rank->inputs.now, 0) << schedule;
    EXPECT_EQ(rank->outputs.now, 0) << schedule;
  }
  return measured;
}

TEST(PipelineMemory, OneForwardOneBackwardKeepsAsManyMicrobatchesAsStagesFollow) {
  for (const int pp : {2, 3, 4}) {
    const auto measured = measure(pp, "1f1b");
    for (int rank = 0; rank < pp; ++rank) {
      EXPECT_EQ(measured.ranks[static_cast<std::size_t>(rank)]->inputs.peak, pp - rank) << "pp=" << pp;
    }
  }
}

TEST(PipelineMemory, GpipeKeepsAllMicrobatches) {
  const auto measured = measure(3, "gpipe");
  for (const auto& rank : measured.ranks) EXPECT_EQ(rank->inputs.peak, kMicrobatches);
}

TEST(PipelineMemory, EveryScheduleKeepsWhatItsTableSays) {
  for (const char* schedule : {"gpipe", "1f1b", "interleaved", "zbh1", "zbv"}) {
    for (const int pp : {2, 4}) {
      const auto measured = measure(pp, schedule);
      const auto expected = peak_in_flight(measured.table);
      for (std::size_t rank = 0; rank < expected.size(); ++rank) {
        EXPECT_EQ(measured.ranks[rank]->inputs.peak, expected[rank]) << schedule << " pp=" << pp << " rank " << rank;
      }
    }
  }
}

// All forwards come first. By the second backward of a stage the next one has all of its values: none is left here.
TEST(PipelineMemory, OutputsAreGoneWhenTheyWereSent) {
  const auto measured = measure(3, "gpipe");
  for (int rank = 0; rank < 2; ++rank) {
    const auto& outputs = measured.ranks[static_cast<std::size_t>(rank)]->outputs;
    ASSERT_EQ(outputs.at_backward.size(), 2U * kMicrobatches);
    for (const std::size_t step : {0U, 1U}) {
      EXPECT_LT(outputs.at_backward[step * kMicrobatches], kMicrobatches) << "the first value is answered";
      for (std::size_t m = 1; m < kMicrobatches; ++m) {
        EXPECT_EQ(outputs.at_backward[step * kMicrobatches + m], 0) << "rank " << rank << " microbatch " << m;
      }
    }
  }
}

}  // namespace pipeline_memory_test
}  // namespace orthant
