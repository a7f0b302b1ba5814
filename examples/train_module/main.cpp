// Plain libtorch modules as units: trained, saved, and continued. Start it twice: the second run goes on from the
// first.
#include <ATen/ATen.h>
#include <orthant/orthant.h>
#include <torch/nn/modules/linear.h>

#include <filesystem>
#include <iostream>

struct EncoderImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return linear(x).tanh(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(8, 32));
};
TORCH_MODULE(Encoder);

struct HeadImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& features, const at::Tensor& y) { return (linear(features) - y).square().sum(); }
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(32, 1));
};
TORCH_MODULE(Head);

int main() {
  at::manual_seed(1);
  orthant::Graph graph;
  graph.add("encoder", Encoder(), {"x"}, {"features"});
  graph.add("head", Head(), {"features", "y"}, {"loss"});  // a sum over rows
  orthant::TrainerOptions options;
  options.lr.peak = 1e-2;
  orthant::Trainer trainer(graph, orthant::Mesh(), options);
  if (std::filesystem::exists("checkpoint")) trainer.load("checkpoint");
  const auto x = at::arange(512).reshape({64, 8}).to(at::kFloat).sin();
  const auto batch = orthant::batch_of({{"x", x}, {"y", x.sum(1, true).cos()}});
  double loss = 0;
  for (int i = 0; i < 50; ++i) loss = trainer.step(batch).get().loss;
  std::cout << "step " << trainer.steps_done() << " loss " << loss << std::endl;
  trainer.save("checkpoint");
}
