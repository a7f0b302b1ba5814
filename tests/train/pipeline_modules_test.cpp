// A user's own modules over stages: values of any shape and layout travel, and bits are those of one rank.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <set>

#include "base/error_text.h"
#include "train/trainers_on_ranks.h"

namespace orthant {
namespace pipeline_modules_test {

using test::Outcome;

// Features in channels-last memory, a mask of where they are large, and a number per row without a gradient.
struct PixelsImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const auto y = conv(x).tanh().contiguous(at::MemoryFormat::ChannelsLast);
    return {y, y > 0.1, y.detach().mean(std::vector<std::int64_t>{1, 2, 3})};
  }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(2, 4, 3));
};
TORCH_MODULE(Pixels);

struct MaskedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& y, const at::Tensor& mask) { return conv(y.where(mask, y * 0.5)).tanh(); }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(4, 4, 1));
};
TORCH_MODULE(Masked);

// A transposed view, and a number per row that no loss depends on: its gradient never comes.
struct PooledImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& y, const at::Tensor& z) {
    const auto rows = linear((y + z).flatten(2).mean(-1)).tanh();
    return {rows.t(), rows.sum(-1)};
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(4, 6));
};
TORCH_MODULE(Pooled);

struct ScoresImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& columns, const at::Tensor& unused, const at::Tensor& level) {
    return linear(columns.t() + 0.01 * level.unsqueeze(1)) + unused.detach().unsqueeze(1) * 0.125;
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
};
TORCH_MODULE(Scores);

struct SquaresImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& scores, const at::Tensor& target) { return (scores - target).square().sum(); }
};
TORCH_MODULE(Squares);

struct SizesImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& y) { return (y.square().flatten(1).sum(1) * scale).sum(); }
  at::Tensor scale = register_parameter("scale", at::full({1}, 0.01));
};
TORCH_MODULE(Sizes);

Graph pixel_graph() {
  at::manual_seed(3);
  Graph graph;
  graph.add("pixels", Pixels(), {"x"}, {"y", "mask", "level"});
  graph.add("masked", Masked(), {"y", "mask"}, {"z"});
  graph.add("sizes", Sizes(), {"z"}, {"size_loss"});
  graph.add("pooled", Pooled(), {"y", "z"}, {"columns", "unused"});
  graph.add("scores", Scores(), {"columns", "unused", "level"}, {"scores"});
  graph.add("squares", Squares(), {"scores", "target"}, {"loss"});
  return graph;
}

Batch pixel_batch() {
  const auto x = at::arange(12 * 2 * 5 * 4).reshape({12, 2, 5, 4}).to(at::kFloat).sin();
  return batch_of({{"x", x}, {"target", x.flatten(1).narrow(1, 0, 3).cos()}});
}

TrainerOptions module_options(int microbatches) {
  TrainerOptions options;
  options.lr.peak = 0.02;
  options.optimizer.clip = 0.1;
  options.microbatches = microbatches;
  return options;
}

std::vector<std::vector<std::string>> module_split(int stages) {
  if (stages == 2) return {{"pixels", "masked"}, {"sizes", "pooled", "scores", "squares"}};
  return {{"pixels"}, {"masked", "sizes", "pooled"}, {"scores", "squares"}};
}

TEST(PipelineModules, HaveTheBitsOfOneRankUnderEverySchedule) {
  for (const int microbatches : {1, 4}) {
    Outcome expected;
    auto options = module_options(microbatches);
    const auto train = [&](Trainer& trainer) { return test::train_steps(trainer, pixel_batch(), 5); };
    test::on_module_trainers(pixel_graph, Mesh(), options, [&](Trainer& trainer) { expected = train(trainer); });
    for (const double norm : expected.norms) EXPECT_GT(norm, options.optimizer.clip);
    for (const int pp : {2, 3}) {
      for (const char* schedule : {"gpipe", "1f1b", "zbh1"}) {
        options.stages = {.schedule = schedule, .split = module_split(pp)};
        test::on_module_trainers(pixel_graph, Mesh(Degrees{{Axis::pp, pp}}), options, [&](Trainer& trainer) {
          EXPECT_EQ(train(trainer), expected) << "pp=" << pp << " " << schedule << " m=" << microbatches;
        });
      }
    }
  }
}

TEST(PipelineModules, OverGlooHaveTheBitsOfOneRank) {
  Outcome expected;
  auto options = module_options(3);
  const auto train = [&](Trainer& trainer) { return test::train_steps(trainer, pixel_batch(), 2); };
  test::on_module_trainers(pixel_graph, Mesh(), options, [&](Trainer& trainer) { expected = train(trainer); });
  options.stages.split = module_split(3);
  auto comm = test::quick_comm();
  comm.backend = comm::BackendKind::gloo;
  test::on_module_trainers(
      pixel_graph, Mesh::parse("pp=3"), options, [&](Trainer& trainer) { EXPECT_EQ(train(trainer), expected); }, comm);
}

// Every rank has the values that its own stage writes, with the bits of one rank.
TEST(PipelineModules, EvaluationGivesValuesWhereTheyAreWritten) {
  const std::vector<std::string> wanted = {"y", "mask", "z", "columns", "scores", "loss"};
  const std::vector<std::set<std::string>> owned = {{"y", "mask"}, {"z", "columns"}, {"scores", "loss"}};
  std::map<std::string, at::Tensor> expected;
  auto options = module_options(2);
  const auto evaluated = [&](Trainer& trainer) {
    test::train_steps(trainer, pixel_batch(), 2);
    return trainer.evaluate(pixel_batch().fields, wanted);
  };
  test::on_module_trainers(pixel_graph, Mesh(), options, [&](Trainer& trainer) { expected = evaluated(trainer); });
  ASSERT_EQ(expected.size(), wanted.size());
  options.stages.split = module_split(3);
  test::on_module_trainers(pixel_graph, Mesh::parse("pp=3"), options, [&](Trainer& trainer) {
    for (int again = 0; again < 2; ++again) {
      const auto found = again == 0 ? evaluated(trainer) : trainer.evaluate(pixel_batch().fields, wanted);
      std::set<std::string> names;
      for (const auto& [name, tensor] : found) {
        names.insert(name);
        EXPECT_TRUE(at::equal(tensor, expected.at(name))) << name;
      }
      EXPECT_EQ(names, owned[static_cast<std::size_t>(trainer.rank())]);
    }
  });
}

// Rows of a table by an integer that another stage computes.
struct BucketImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x) {
    const auto rows = x.flatten(1);
    return {linear(rows).tanh(), (rows.sum(1) * 10).to(at::kLong).remainder(5)};
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(40, 6));
};
TORCH_MODULE(Bucket);

struct PickedImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& rows, const at::Tensor& bucket) {
    return linear(rows + table.index_select(0, bucket.unsqueeze(1).flatten()));
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(6, 3));
  at::Tensor table = register_parameter("table", at::rand({5, 6}));
};
TORCH_MODULE(Picked);

TEST(PipelineModules, AnIntegerValueIsReadByAnotherStage) {
  const auto make_graph = [] {
    at::manual_seed(4);
    Graph graph;
    graph.add("bucket", Bucket(), {"x"}, {"rows", "bucket"});
    graph.add("picked", Picked(), {"rows", "bucket"}, {"scores"});
    graph.add("squares", Squares(), {"scores", "target"}, {"loss"});
    return graph;
  };
  Outcome expected;
  auto options = module_options(4);
  const auto train = [&](Trainer& trainer) { return test::train_steps(trainer, pixel_batch(), 5); };
  test::on_module_trainers(make_graph, Mesh(), options, [&](Trainer& trainer) { expected = train(trainer); });
  options.stages.split = {{"bucket"}, {"picked", "squares"}};
  test::on_module_trainers(make_graph, Mesh::parse("pp=2"), options,
                           [&](Trainer& trainer) { EXPECT_EQ(train(trainer), expected); });
}

TEST(PipelineModules, OneStageMoreThanThereAreUnitsIsRefused) {
  EXPECT_EQ(
      error_text<ConfigError>([] {
        TrainerOptions options;
        Trainer trainer(pixel_graph(), Mesh::parse("pp=7"), options);
      }),
      "parallel.schedule=1f1b on mesh.pp=7 with 1 stage per pp coordinate asks for 7 stages; graph \"graph\" has 6 "
      "units, "
      "and a loss stays with the unit that feeds it\n"
      "  fix: use at most 4 stages: a smaller mesh.pp, fewer stages per pp coordinate, or another parallel.split");
}

}  // namespace pipeline_modules_test
}  // namespace orthant
