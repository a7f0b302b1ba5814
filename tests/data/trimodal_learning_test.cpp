// The trimodal demo can be learned, and only from all its parts: a small network over counted words and the numbers
// comes near the best accuracy, and stays below the known bound when any part is hidden from it.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <cmath>
#include <numeric>

#include "orthant/data/sampler.h"
#include "orthant/data/trimodal_demo.h"

namespace orthant {
namespace trimodal_learning_test {

constexpr std::int64_t kTrain = 4096;
constexpr std::int64_t kEval = 4096;
constexpr std::int64_t kHidden = 32;

struct Features {
  at::Tensor x;  // [rows, words of the dialogue + words of the track + numbers]
  at::Tensor labels;
};

// `hidden_part` (0 dialogue, 1 track, 2 numbers, -1 none) is replaced by zeros.
Features features_of(const TrimodalDemo& demo, int hidden_part) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(demo.size()));
  std::iota(indices.begin(), indices.end(), 0);
  const Fields fields = demo.rows(indices);
  const auto counted = [&](const std::string& name) {
    const at::Tensor counts = at::zeros({demo.size(), demo.vocab_size()});
    const at::Tensor& ids = fields.at(name + "_ids");
    return counts.scatter_add_(1, ids, fields.at(name + "_mask").to(at::kFloat));
  };
  std::vector<at::Tensor> parts = {counted("primary"), counted("secondary"), fields.at("tabular")};
  if (hidden_part >= 0) parts[static_cast<std::size_t>(hidden_part)].zero_();
  return {at::cat(parts, 1), fields.at("labels")};
}

// One hidden layer, trained by Adam.
class Network {
 public:
  explicit Network(std::int64_t inputs) {
    const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto made = [&](std::vector<std::int64_t> shape, double scale) {
      at::Tensor weight = at::empty(shape).normal_(0, scale, generator).requires_grad_();
      first_.push_back(at::zeros(shape));
      second_.push_back(at::zeros(shape));
      return weight;
    };
    weights_ = {made({kHidden, inputs}, 0.1), made({kHidden}, 0.0), made({2, kHidden}, 0.2), made({2}, 0.0)};
  }

  at::Tensor logits(const at::Tensor& x) const {
    return at::linear(at::linear(x, weights_[0], weights_[1]).relu(), weights_[2], weights_[3]);
  }

  void train_step(const at::Tensor& x, const at::Tensor& labels) {
    at::cross_entropy_loss(logits(x), labels).backward();
    const at::NoGradGuard no_grad;
    ++steps_;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      at::Tensor& gradient = weights_[i].mutable_grad();
      first_[i].mul_(0.9).add_(gradient, 0.1);
      second_[i].mul_(0.99).addcmul_(gradient, gradient, 0.01);
      const double scale = 0.005 * std::sqrt(1 - std::pow(0.99, steps_)) / (1 - std::pow(0.9, steps_));
      weights_[i].addcdiv_(first_[i], second_[i].sqrt().add_(1e-8), -scale);
      gradient.zero_();
    }
  }

 private:
  std::vector<at::Tensor> weights_;
  std::vector<at::Tensor> first_;
  std::vector<at::Tensor> second_;
  int steps_ = 0;
};

double eval_accuracy(int hidden_part) {
  const Features train = features_of(TrimodalDemo({.size = kTrain}), hidden_part);
  const Features eval = features_of(TrimodalDemo({.size = kEval, .split = DataSplit::eval}), hidden_part);
  Network network(train.x.size(1));
  const Sampler sampler(kTrain, 64, 0);
  for (std::int64_t step = 0; step < 6 * sampler.steps_per_epoch(); ++step) {
    const at::Tensor indices = at::tensor(sampler.at(step).samples);
    network.train_step(train.x.index_select(0, indices), train.labels.index_select(0, indices));
  }
  const at::NoGradGuard no_grad;
  return network.logits(eval.x).argmax(1).eq(eval.labels).to(at::kDouble).mean().item<double>();
}

TEST(TrimodalLearning, AllPartsTogetherReachTheBestAccuracy) {
  at::set_num_threads(1);
  const double accuracy = eval_accuracy(-1);
  EXPECT_GT(accuracy, TrimodalDemo().best_accuracy() - 0.03);
}

TEST(TrimodalLearning, TwoPartsAloneStayAtTheirBound) {
  at::set_num_threads(1);
  for (const int hidden_part : {0, 1, 2}) {
    const double accuracy = eval_accuracy(hidden_part);
    // The bound is an expectation; four standard deviations of 4096 samples are 0.028.
    EXPECT_LT(accuracy, TrimodalDemo().best_accuracy_of_some_parts() + 0.028) << "without part " << hidden_part;
    EXPECT_GT(accuracy, 0.6) << "without part " << hidden_part;
  }
}

}  // namespace trimodal_learning_test
}  // namespace orthant
