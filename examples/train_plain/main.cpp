// A training loop on libtorch alone. ../train_ddp is this file with two more lines.
#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <iostream>

int main() {
  at::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0));
  const auto inputs = at::randn({1024, 8});
  const auto targets = inputs.sin().sum(1, true);
  for (int step = 0; step < 100; ++step) {
    const int begin = step * 64 % 1024;
    auto x = inputs.slice(0, begin, begin + 64);
    auto y = targets.slice(0, begin, begin + 64);
    optimizer.zero_grad();
    auto loss = (model->forward(x) - y).square().mean();
    loss.backward();
    optimizer.step();
  }
  std::cout << "loss " << (model->forward(inputs) - targets).square().mean().item<double>() << std::endl;
}
