// ../train_plain on several ranks, by the two lines marked DDP. The loss is the same on any number of ranks that
// divides the batch. Start it with: orthant launch --nproc 2 -- ./train_ddp
#include <ATen/ATen.h>
#include <orthant/orthant.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adamw.h>

#include <iostream>

int main() {
  at::manual_seed(1);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  orthant::DataParallel parallel(*model, orthant::join());  // DDP: backward() averages over ranks
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2).weight_decay(0));
  const auto inputs = at::randn({1024, 8});
  const auto targets = inputs.sin().sum(1, true);
  for (int step = 0; step < 100; ++step) {
    const int begin = step * 64 % 1024;
    auto x = inputs.slice(0, begin, begin + 64);
    auto y = targets.slice(0, begin, begin + 64);
    x = parallel.rows(x), y = parallel.rows(y);  // DDP: this rank's share of the batch
    optimizer.zero_grad();
    auto loss = (model->forward(x) - y).square().mean();
    loss.backward();
    optimizer.step();
  }
  std::cout << "loss " << (model->forward(inputs) - targets).square().mean().item<double>() << std::endl;
}
