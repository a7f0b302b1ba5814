// ../train_plain with parameters, gradients and optimizer state sharded over all ranks: the module's children become
// units of a graph, and the trainer gathers each one only while it runs. The loss is that of ../train_plain.
// Start it with: orthant launch --nproc 2 -- ./train_fsdp
#include <ATen/ATen.h>
#include <orthant/orthant.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <iostream>

struct SquaredErrorImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& output, const at::Tensor& y) { return (output - y).square().sum(); }
};
TORCH_MODULE(SquaredError);

int main() {
  at::manual_seed(1);
  const auto job = orthant::join();
  const auto mesh = orthant::Mesh::inferred({}, orthant::Axis::fsdp, job.world_size);
  torch::nn::Sequential model(torch::nn::Linear(8, 64), torch::nn::Tanh(), torch::nn::Linear(64, 1));
  orthant::Graph graph;
  graph.add_children("model", model, "x", "output");
  graph.add("loss", SquaredError(), {"output", "y"}, {"loss"});  // a sum over rows

  orthant::TrainerOptions options;
  options.policy.zero = 3;
  options.optimizer.weight_decay = 0;
  options.lr = {.kind = orthant::LrSchedule::Kind::constant, .peak = 1e-2};
  options.communicator = orthant::connect_ranks(mesh, job, options);
  orthant::Trainer trainer(graph, mesh, options);
  const auto inputs = at::randn({1024, 8});
  const auto targets = inputs.sin().sum(1, true);
  for (int step = 0; step < 100; ++step) {
    const int begin = step * 64 % 1024;
    const auto x = inputs.slice(0, begin, begin + 64);
    const auto y = targets.slice(0, begin, begin + 64);
    trainer.step(trainer.own_rows(orthant::batch_of({{"x", x}, {"y", y}})));
  }
  const auto sum = trainer.evaluate({{"x", inputs}, {"y", targets}}, {"loss"}).at("loss");
  std::cout << "loss " << sum.item<double>() / 1024 << std::endl;
}
