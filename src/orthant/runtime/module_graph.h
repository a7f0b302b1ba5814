// A user's own model as a graph of units: any torch::nn::Module can be one, and so can recorded operations. The Trainer
// places the graph, shards it and runs it like the models that come with orthant.
//
//   orthant::Graph graph;
//   graph.add("encoder", encoder, {"pixels"}, {"features"});
//   graph.add("block", block, {"features"}, {"mixed"});       // a Recorded: cut over tp
//   graph.add("head", head, {"mixed", "labels"}, {"loss"});   // a sum over rows
//
// Inputs that no unit writes come with the batch. Outputs called "loss", or ending in "_loss", are losses: sums over
// rows, never means. A unit has at most one, named first. Parameters of more than one dim are decayed. Refused: a
// tensor that modules of two units hold, and floating-point buffers. Between units values are whole on every tp rank;
// modules run on all of them alike.
#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "orthant/graph/recorder.h"
#include "orthant/graph/spec.h"
#include "orthant/nn/tables.h"
#include "orthant/parallel/data/parameter_store.h"
#include "orthant/runtime/unit.h"

namespace torch::nn {
class Sequential;
}

namespace orthant {

// A unit as operations, see ops/functions.h and recorder.h. A split backward makes its weight gradients apart, and over
// tp its parameters are cut as they say.
struct Recorded {
  // Named within the unit ("wq.weight"); first values are drawn. `tp` says how one may be cut.
  std::vector<ParameterSpec> parameters = {};
  // Takes the unit's inputs in their order, by tokens() [rows, tokens, channels], rows() [rows, channels] or field(),
  // and gives its one output.
  std::function<Value(Recorder&)> record;
};

class Graph {
 public:
  using Forward = std::function<Tensors(const Tensors&)>;

  // `module` is a ModuleHolder or a shared_ptr of a module whose forward takes as many tensors as there are inputs (up
  // to eight) and returns a tensor, a vector or a tuple of tensors. ConfigError for a module with floating-point
  // buffers.
  template <typename Module>
  Graph& add(const std::string& name, const Module& module, std::vector<std::string> inputs,
             std::vector<std::string> outputs) {
    auto pointer = pointer_of(module);
    auto forward = [pointer](const Tensors& tensors) { return call(*pointer, tensors); };
    add_module(name, pointer, std::move(forward), std::move(inputs), std::move(outputs));
    return *this;
  }

  // ConfigError when what is recorded does not fit the names of inputs, outputs and parameters.
  Graph& add(const std::string& name, const Recorded& recorded, std::vector<std::string> inputs,
             std::vector<std::string> outputs);

  // The children of a torch::nn::Sequential as units "name.0", "name.1", ...: each takes the value before it.
  // ConfigError as for add(), and for no children.
  Graph& add_children(const std::string& name, const torch::nn::Sequential& children, const std::string& input,
                      const std::string& output);

  // Makes the modules of all ranks alike: rank 0's parameters and buffers. ConfigError, on every rank, that names the
  // first difference when they are not of the same make. Collective over the world.
  void take_first_rank(const comm::Communicator& communicator) const;

  // The spec: checked. And what the Trainer makes the units from.
  GraphSpec spec() const;
  std::vector<std::unique_ptr<Unit>> make_units(ParameterStore& store, Tables& tables) const;

 private:
  struct Part {
    std::string name;
    std::shared_ptr<torch::nn::Module> module;  // null: it is recorded
    Forward forward;
    std::vector<std::string> inputs;
    std::vector<std::string> outputs;
    std::vector<ParameterSpec> parameters = {};  // of a recorded one, by full names
    SharedBody body = {};                        // likewise
  };

  template <typename Module>
  static auto pointer_of(const Module& module) {
    if constexpr (requires { module.ptr(); }) {
      return module.ptr();
    } else {
      return module;
    }
  }

  // Whether forward takes as many tensors as there are indices.
  template <typename Module, std::size_t... I>
  static constexpr bool takes(std::index_sequence<I...>) {
    return requires(Module& module, const Tensors& tensors) { module.forward(tensors[I]...); };
  }

  template <typename Module, std::size_t... I>
  static auto forward_of(Module& module, const Tensors& tensors, std::index_sequence<I...>) {
    return module.forward(tensors[I]...);
  }

  template <typename Module, std::size_t Count = 1>
  static Tensors call(Module& module, const Tensors& tensors) {
    if (tensors.size() == Count) {
      if constexpr (takes<Module>(std::make_index_sequence<Count>())) {
        return as_list(forward_of(module, tensors, std::make_index_sequence<Count>()));
      }
    }
    if constexpr (Count < 8) return call<Module, Count + 1>(module, tensors);
    refuse_arity(tensors.size());
  }

  static Tensors as_list(at::Tensor tensor) { return {std::move(tensor)}; }
  static Tensors as_list(Tensors tensors) { return tensors; }
  template <typename... Items>
  static Tensors as_list(std::tuple<Items...> items) {
    return std::apply([](auto&&... tensor) { return Tensors{tensor...}; }, std::move(items));
  }

  [[noreturn]] static void refuse_arity(std::size_t inputs);
  void add_module(const std::string& name, std::shared_ptr<torch::nn::Module> module, Forward forward,
                  std::vector<std::string> inputs, std::vector<std::string> outputs);

  std::vector<Part> parts_;
};

}  // namespace orthant
