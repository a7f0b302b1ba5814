// How an executor runs a user's own module: forward is a small autograd graph from detached inputs, backward walks it.
#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/base/philox.h"
#include "orthant/runtime/executor_step.h"

namespace orthant {

Tensors Executor::with_catches(const UnitWiring& wiring, UnitRun& run, const Tensors& inputs) {
  Tensors attached;
  run.catches.resize(inputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!wiring.inputs[i].needs_gradient || !torch::autograd::isDifferentiableType(inputs[i].scalar_type())) {
      attached.push_back(inputs[i]);
      continue;
    }
    auto& caught = run.catches[i].emplace(inputs[i]);
    attached.push_back(caught.tensor());
    caught.release();
  }
  return attached;
}

Tensors Executor::call(int unit, UnitRun& run, const Tensors& inputs, const StepFacts& facts) {
  if (units_[to_index(unit)]->draws_random_numbers()) {
    const auto key = stream_hash(
        graph_.units[to_index(unit)].name,
        {facts.seed, static_cast<std::uint64_t>(facts.step), static_cast<std::uint64_t>(run.frame.pass.first_row)});
    at::manual_seed(key);
  }
  auto outputs = units_[to_index(unit)]->forward(inputs, run.frame.pass);
  if (outputs.size() != wirings_[to_index(unit)].outputs.size()) {
    throw ConfigError(fmt::format("unit {} returned {} values; its spec names {}", graph_.units[to_index(unit)].name,
                                  outputs.size(), wirings_[to_index(unit)].outputs.size()));
  }
  return outputs;
}

void Executor::keep_edges(UnitRun& run, const Tensors& outputs) {
  for (const auto& output : outputs) {
    run.edges.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                               : torch::autograd::Edge());
  }
}

Tensors Executor::backward_by_autograd(Step& step, int unit, UnitRun& run, Tensors gradients, bool defer_weights) {
  const auto& wiring = wirings_[to_index(unit)];
  if (wiring.recomputed) {
    at::AutoGradMode on(true);
    const auto inputs = with_catches(wiring, run, std::exchange(run.inputs, {}));
    keep_edges(run, call(unit, run, inputs, step.facts));
  }
  torch::autograd::edge_list roots;
  torch::autograd::variable_list seeds;
  for (std::size_t i = 0; i < wiring.outputs.size(); ++i) {
    if (!gradients[i].defined() || !run.edges[i].is_valid()) continue;
    roots.push_back(std::move(run.edges[i]));
    seeds.push_back(std::move(gradients[i]));
  }
  run.edges.clear();
  if (!roots.empty()) {
    torch::autograd::Engine::get_default_engine().execute(roots, seeds, /*keep_graph=*/false, /*create_graph=*/false,
                                                          /*accumulate_grad=*/true, /*outputs=*/{});
  }
  Tensors handed;
  for (std::size_t i = 0; i < wiring.inputs.size(); ++i) {
    handed.push_back(run.catches.empty() || !run.catches[i] ? at::Tensor() : run.catches[i]->take());
  }
  run.catches.clear();
  if (!defer_weights) units_[to_index(unit)]->backward_weights();
  return handed;
}

}  // namespace orthant
