// What users of other stacks met with their own modules under a pipeline, which the program's models do not show:
// shapes that vary from microbatch to microbatch, and edges that are integers, masks or have no gradient. See
// docs/complaints.md; tests/system/test_complaints.py has the other complaints.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <set>
#include <vector>

#include "train/trainers_on_ranks.h"

namespace orthant {
namespace complaints_test {

using test::Outcome;

constexpr std::int64_t kRows = 12;
constexpr std::int64_t kLength = 9;
constexpr std::int64_t kWords = 13;
constexpr std::int64_t kChannels = 6;

using Lengths = std::set<std::int64_t>;

// ids [rows, kLength], 0 after a row's end -> states [rows, longest, channels], mask [rows, longest],
// ends [rows]: `longest` is that of the rows at hand.
struct ReaderImpl : torch::nn::Module {
  std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& ids) {
    const auto lengths = (ids != 0).sum(1);
    const auto used = ids.narrow(1, 0, lengths.max().item<std::int64_t>());
    return {words(used), used != 0, lengths - 1};
  }
  torch::nn::Embedding words = register_module("words", torch::nn::Embedding(kWords, kChannels));
};
TORCH_MODULE(Reader);

// Adds the mean of a row's words to each of them.
struct MixerImpl : torch::nn::Module {
  explicit MixerImpl(Lengths* lengths = nullptr) : seen(lengths) {}
  at::Tensor forward(const at::Tensor& states, const at::Tensor& mask) {
    if (seen != nullptr) seen->insert(states.size(1));
    const auto counted = mask.to(states.dtype()).unsqueeze(2);
    const auto mean = (states * counted).sum(1, /*keepdim=*/true) / counted.sum(1, /*keepdim=*/true);
    return linear(states + mean).tanh();
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(kChannels, kChannels));
  Lengths* seen;
};
TORCH_MODULE(Mixer);

// The last word of each row.
struct PickerImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& mixed, const at::Tensor& ends) {
    EXPECT_EQ(ends.scalar_type(), at::kLong);
    const auto index = ends.reshape({-1, 1, 1}).expand({ends.size(0), 1, mixed.size(2)});
    return linear(mixed.gather(1, index).squeeze(1));
  }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(kChannels, 2));
};
TORCH_MODULE(Picker);

struct SquaresImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& scores, const at::Tensor& target) { return (scores - target).square().sum(); }
};
TORCH_MODULE(Squares);

Graph text_graph(Lengths* lengths) {
  at::manual_seed(3);
  Graph graph;
  graph.add("reader", Reader(), {"ids"}, {"states", "mask", "ends"});
  graph.add("mixer", Mixer(lengths), {"states", "mask"}, {"mixed"});
  graph.add("picker", Picker(), {"mixed", "ends"}, {"scores"});
  graph.add("squares", Squares(), {"scores", "target"}, {"loss"});
  return graph;
}

// Rows of 2 to 9 words; of any microbatches of three rows no two have the same longest one.
Batch text_batch() {
  auto ids = at::arange(kRows * kLength, at::kLong).reshape({kRows, kLength}).mul(5).remainder(kWords - 1).add(1);
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto used = 2 + (row / 3) * 2 + row % 2;
    ids[row].narrow(0, used, kLength - used).zero_();
  }
  const auto target = at::arange(kRows * 2).reshape({kRows, 2}).to(at::kFloat).sin();
  return batch_of({{"ids", ids}, {"target", target}});
}

TrainerOptions text_options() {
  TrainerOptions options;
  options.lr.peak = 0.02;
  options.optimizer.clip = 0.1;
  options.microbatches = 4;
  return options;
}

// The integer edge `ends` skips the mixer's stage, the mask does not; neither has a gradient.
TEST(Complaints, No24ShapesVaryPerMicrobatchAndEdgesNeedNoGradient) {
  Lengths expected_lengths;
  Outcome expected;
  auto options = text_options();
  const auto train = [&](Trainer& trainer) { return test::train_steps(trainer, text_batch(), 4); };
  test::on_module_trainers([&] { return text_graph(&expected_lengths); }, Mesh(), options,
                           [&](Trainer& trainer) { expected = train(trainer); });
  ASSERT_EQ(expected_lengths, Lengths({3, 5, 7, 9}));
  EXPECT_LT(expected.losses.back(), expected.losses.front());
  options.stages.split = {{"reader"}, {"mixer"}, {"picker", "squares"}};
  for (const auto backend : {comm::BackendKind::shm, comm::BackendKind::gloo}) {
    auto comm = test::quick_comm();
    comm.backend = backend;
    for (const char* schedule : {"gpipe", "1f1b", "zbh1"}) {
      options.stages.schedule = schedule;
      std::vector<std::unique_ptr<Lengths>> lengths;  // of each rank's mixer; one of them runs
      const auto make_graph = [&] {                   // one rank after the other
        return text_graph(lengths.emplace_back(std::make_unique<Lengths>()).get());
      };
      test::on_module_trainers(
          make_graph, Mesh::parse("pp=3"), options,
          [&](Trainer& trainer) { EXPECT_EQ(train(trainer), expected) << schedule; }, comm);
      Lengths all;
      for (const auto& one : lengths) all.insert(one->begin(), one->end());
      EXPECT_EQ(all, expected_lengths) << schedule;
    }
  }
}

}  // namespace complaints_test
}  // namespace orthant
