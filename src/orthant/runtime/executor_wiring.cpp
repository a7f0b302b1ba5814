// What an executor knows before any list runs: who reads what, and what values look like.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/graph/backward.h"
#include "orthant/runtime/executor.h"

namespace orthant {
Executor::Executor(const GraphSpec& graph, const std::vector<std::unique_ptr<Unit>>& units, Recompute recompute,
                   const Peers& peers, const std::vector<std::string>& remade)
    : graph_(graph),
      units_(units),
      tensor_(peers.tensor),
      context_(peers.context),
      experts_(peers.experts),
      links_(peers.links) {
  const auto compare = [&](const char* axis, int degree, int given) {
    if (degree == given) return;
    throw InternalError(
        fmt::format("graph \"{}\" lies over {} {} ranks; the executor was given {}", graph.name, degree, axis, given));
  };
  compare("tp", graph.tensor ? graph.tensor->degree : 1, tensor_ == nullptr ? 1 : tensor_->degree());
  compare("cp", graph.context.degree, context_ == nullptr ? 1 : context_->degree());
  compare("ep", graph.expert_degree, experts_ == nullptr ? 1 : experts_->degree());
  make_wirings(recompute, remade);
}

void Executor::make_wirings(Recompute recompute, const std::vector<std::string>& remade) {
  const Remake remake = remake_of(recompute, remade);
  const auto num_values = graph_.values.size();
  const auto backward = backward_facts(graph_);
  readers_.resize(num_values);
  local_readers_.resize(num_values);
  is_loss_.resize(num_values);
  loss_counts_.resize(num_values);
  for (std::size_t v = 0; v < num_values; ++v) {
    value_index_[graph_.values[v].name] = static_cast<int>(v);
    makers_.push_back(graph_.producer(graph_.values[v].name));
  }
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& spec = graph_.units[to_index(u)];
    UnitWiring wiring;
    wiring.has_backward = backward.units[to_index(u)];
    for (const auto& name : spec.inputs) {
      Input input{name};
      if (const auto found = value_index_.find(name); found != value_index_.end()) {
        input.value = found->second;
        input.needs_gradient = backward.values[to_index(input.value)];
        readers_[to_index(input.value)].push_back(u);
        if (units_[to_index(u)]) ++local_readers_[to_index(input.value)];
      }
      wiring.inputs.push_back(std::move(input));
    }
    for (const auto& name : spec.outputs) {
      wiring.outputs.push_back(value_index_.at(name));
    }
    if (units_[to_index(u)]) {
      std::vector<bool> needs;
      for (const auto& input : wiring.inputs) needs.push_back(input.needs_gradient);
      units_[to_index(u)]->compile(remake, needs, tensor_);
    }
    wiring.tokens_of = graph_.tokens_of(spec);
    if (spec.is_loss) {
      is_loss_[to_index(wiring.outputs.front())] = true;
      loss_counts_[to_index(wiring.outputs.front())] =
          context_ == nullptr || !wiring.tokens_of.empty() || context_->coordinate() == 0;
    }
    if (!spec.auxiliary_loss.empty()) {  // of tokens
      const auto value = to_index(value_index_.at(spec.auxiliary_loss));
      is_loss_[value] = loss_counts_[value] = true;
    }
    wirings_.push_back(std::move(wiring));
  }
  for (std::size_t u = 0; u < wirings_.size(); ++u) {
    auto& wiring = wirings_[u];
    const bool recomputed = recompute == Recompute::full && graph_.units[u].recomputable && wiring.has_backward;
    wiring.owns_inputs = !recomputed && std::ranges::all_of(wiring.inputs, [&](const Input& input) {
      return input.value < 0 ||
             (readers_[to_index(input.value)].size() == 1 && !graph_.values[to_index(input.value)].opaque);
    });
  }
}

}  // namespace orthant
