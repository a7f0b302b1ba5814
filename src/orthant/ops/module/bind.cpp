// A user's module runs as a small autograd graph from detached inputs; its backward walks that graph.
#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <optional>

#include "orthant/base/error.h"
#include "orthant/base/philox.h"
#include "orthant/nn/binding.h"
#include "orthant/ops/module/gradient_catch.h"

namespace orthant {
namespace {

// What a forward leaves for its backward: the value "graph" of the operation.
struct ModuleGraph {
  // One per input; none where there is no gradient to catch: of batch fields, and of what a module counts in integers.
  std::vector<std::optional<GradientCatch>> catches;
  torch::autograd::edge_list edges;  // one per output
};

// Programs run below autograd; the user's code does not. See nn::BelowAutograd.
class WithAutograd {
 public:
  WithAutograd() : guard_(c10::impl::tls_local_dispatch_key_set().included_, excluded()) {}

 private:
  static c10::DispatchKeySet excluded() {
    return c10::impl::tls_local_dispatch_key_set().excluded_ - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  }

  c10::impl::ForceDispatchKeyGuard guard_;
};

nn::ModuleCode& code_of(const Binding& b) {
  if (b.module == nullptr) throw InternalError(fmt::format("unit {}: nobody gave the code of its module", b.unit));
  return *b.module;
}

// Per input, whether the backward hands on its gradient.
std::vector<bool> caught_inputs(const Binding& b) {
  std::vector<bool> caught(b.operation.in.size());
  for (const auto& back : b.program.both) {
    if (back.name != "module_back" || back.in.front() != b.operation.out.back()) continue;
    for (std::size_t i = 0; i < caught.size(); ++i) caught[i] = back.out[i] >= 0;
  }
  return caught;
}

class ModuleForward {
 public:
  explicit ModuleForward(const Binding& b)
      : code_(code_of(b)),
        unit_(b.unit),
        in_(b.operation.in),
        out_(b.operation.out.begin(), b.operation.out.end() - 1),
        graph_(b.operation.out.back()),
        caught_(caught_inputs(b)) {
    // Where nobody reads the graph none is made.
    records_ = std::ranges::find(b.operation.frees, graph_) == b.operation.frees.end();
  }

  void operator()(Frame& frame) const {
    const nn::Pass& pass = frame.pass;
    at::manual_seed(stream_hash(
        pass.unit, {pass.seed, static_cast<std::uint64_t>(pass.step), static_cast<std::uint64_t>(pass.first_row)}));
    const WithAutograd with_autograd;
    const at::AutoGradMode mode(records_);
    auto graph = std::make_shared<ModuleGraph>();
    auto outputs = code_.forward(inputs(frame, *graph), pass);
    if (outputs.size() != out_.size()) {
      throw ConfigError(
          fmt::format("unit {} returned {} values; its spec names {}", unit_, outputs.size(), out_.size()));
    }
    for (std::size_t i = 0; i < out_.size(); ++i) {
      if (records_) {
        graph->edges.push_back(outputs[i].requires_grad() ? torch::autograd::impl::gradient_edge(outputs[i])
                                                          : torch::autograd::Edge());
      }
      frame[out_[i]] = outputs[i].detach();
    }
    if (records_) frame.opaque[graph_] = std::move(graph);
  }

 private:
  std::vector<at::Tensor> inputs(Frame& frame, ModuleGraph& graph) const {
    std::vector<at::Tensor> attached;
    graph.catches.resize(in_.size());
    for (std::size_t i = 0; i < in_.size(); ++i) {
      const at::Tensor& input = frame[in_[i]];
      if (!records_ || !caught_[i] || !torch::autograd::isDifferentiableType(input.scalar_type())) {
        attached.push_back(input);
        continue;
      }
      auto& caught = graph.catches[i].emplace(input);
      attached.push_back(caught.tensor());
      caught.release();
    }
    return attached;
  }

  nn::ModuleCode& code_;
  std::string unit_;
  std::vector<int> in_;
  std::vector<int> out_;
  int graph_;
  std::vector<bool> caught_;
  bool records_ = false;
};

Step bind_module(const Binding& b) {
  return ModuleForward(b);
}

Step bind_module_back(const Binding& b) {
  return [in = b.operation.in, out = b.operation.out](Frame& frame) {
    const WithAutograd with_autograd;
    auto& graph = *static_cast<ModuleGraph*>(frame.opaque.at(in.front()).get());
    torch::autograd::edge_list roots;
    torch::autograd::variable_list seeds;
    for (std::size_t i = 0; i < graph.edges.size(); ++i) {
      const int gradient = in[i + 1];
      if (gradient < 0 || !frame[gradient].defined() || !graph.edges[i].is_valid()) continue;
      roots.push_back(std::move(graph.edges[i]));
      seeds.push_back(std::move(frame[gradient]));
    }
    graph.edges.clear();
    if (!roots.empty()) {
      torch::autograd::Engine::get_default_engine().execute(roots, seeds, /*keep_graph=*/false, /*create_graph=*/false,
                                                            /*accumulate_grad=*/true, /*outputs=*/{});
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (out[i] >= 0 && graph.catches[i]) frame[out[i]] = graph.catches[i]->take();
    }
  };
}

Step bind_module_weights(const Binding& b) {
  return [&code = code_of(b)](Frame& /*frame*/) {
    const WithAutograd with_autograd;
    code.backward_weights();
  };
}

}  // namespace

std::vector<NamedBinder> module_binders() {
  return {{"module", bind_module}, {"module_back", bind_module_back}, {"module_weights", bind_module_weights}};
}

}  // namespace orthant
