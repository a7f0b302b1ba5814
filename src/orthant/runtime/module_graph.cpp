#include "orthant/runtime/module_graph.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/container/sequential.h>

#include <algorithm>
#include <map>

#include "orthant/base/error.h"
#include "orthant/graph/backward.h"
#include "orthant/ops/functions.h"
#include "orthant/parallel/data/module_replicas.h"
#include "orthant/runtime/recorded_body.h"

namespace orthant {
namespace {

bool is_loss_name(const std::string& name) {
  return name == "loss" || name.ends_with("_loss");
}

// Autograd has added to the parameter's gradient.
class NoteGradient : public torch::autograd::PostAccumulateGradHook {
 public:
  explicit NoteGradient(nn::Parameter& parameter) : parameter_(parameter) {}
  void operator()(const torch::autograd::Variable& variable) override {
    if (variable.grad().defined()) parameter_.fresh = false;
  }

 private:
  nn::Parameter& parameter_;
};

// The user's module with its parameters moved into the unit's flat buffers.
class OwnModule : public nn::ModuleCode {
 public:
  OwnModule(std::shared_ptr<torch::nn::Module> module, Graph::Forward forward, const UnitParameters& parameters)
      : module_(std::move(module)), forward_(std::move(forward)) {
    at::NoGradGuard no_gradients;
    for (auto& item : module_->named_parameters()) {
      const auto name = fmt::format("{}.{}", parameters.spec().name, item.key());
      auto& parameter = parameters.named(name);
      parameters.set_initial(name, item.value());
      item.value().set_data(parameter.value.variable_data());
      if (!parameter.trainable()) continue;
      item.value().mutable_grad() = parameter.gradient;
      torch::autograd::impl::set_post_acc_grad_hooks(item.value(), std::make_unique<NoteGradient>(parameter));
    }
  }

  ~OwnModule() override {
    for (const auto& parameter : module_->parameters()) {
      torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
    }
  }

  Tensors forward(const Tensors& inputs, const nn::Pass& pass) override {
    module_->train(pass.training);
    return forward_(inputs);
  }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Graph::Forward forward_;
};

// Who holds which tensor.
using Holders = std::map<const void*, std::string>;

std::vector<ParameterSpec> module_parameters(const std::string& unit, const torch::nn::Module& module,
                                             Holders& holders) {
  std::vector<ParameterSpec> parameters;
  for (const auto& item : module.named_parameters()) {
    const auto full = fmt::format("{}.{}", unit, item.key());
    const auto [holder, first] = holders.emplace(item.value().unsafeGetTensorImpl(), full);
    if (!first) {
      throw ConfigError(
          fmt::format("{} and {} are one tensor: modules of two units cannot share it", holder->second, full),
          {.remedy = "put both uses into one unit"});
    }
    ParameterSpec parameter;
    parameter.name = full;
    parameter.shape = item.value().sizes().vec();
    parameter.init.kind = Init::Kind::given;
    parameter.decay = item.value().dim() > 1;
    parameter.trainable = item.value().requires_grad();
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

std::string description_of(const std::vector<ParameterSpec>& parameters) {
  std::string text;
  for (const auto& parameter : parameters) {
    text += fmt::format("parameter {} [{}]\n", parameter.name, fmt::join(parameter.shape, ", "));
  }
  return text;
}

}  // namespace

void Graph::refuse_arity(std::size_t inputs) {
  throw ConfigError(fmt::format("a module's forward does not take {} tensors, as its unit names inputs", inputs),
                    {.remedy = "name as many inputs as forward has arguments, at most eight"});
}

void Graph::add_module(const std::string& name, std::shared_ptr<torch::nn::Module> module, Forward forward,
                       std::vector<std::string> inputs, std::vector<std::string> outputs) {
  if (!module) throw ConfigError(fmt::format("unit {} has no module", name));
  for (const auto& buffer : module->named_buffers()) {
    if (!buffer.value().is_floating_point()) continue;
    throw ConfigError(
        fmt::format("unit {} has a buffer {} of floating-point numbers: running statistics would depend on the mesh",
                    name, buffer.key()),
        {.remedy = "use a norm without them, such as LayerNorm or GroupNorm"});
  }
  parts_.push_back({name, std::move(module), std::move(forward), std::move(inputs), std::move(outputs)});
}

Graph& Graph::add(const std::string& name, const Recorded& recorded, std::vector<std::string> inputs,
                  std::vector<std::string> outputs) {
  auto body = recorded_body(name, recorded, inputs.size(), outputs.size());
  auto parameters = named_parameters(name, recorded.parameters, body);
  parts_.push_back(
      {name, nullptr, {}, std::move(inputs), std::move(outputs), std::move(parameters), SharedBody(std::move(body))});
  return *this;
}

Graph& Graph::add_children(const std::string& name, const torch::nn::Sequential& children, const std::string& input,
                           const std::string& output) {
  if (children->is_empty()) throw ConfigError(fmt::format("{}: a Sequential without children", name));
  auto value = input;
  for (std::size_t i = 0; i < children->size(); ++i) {
    const auto unit = fmt::format("{}.{}", name, i);
    const auto written = i + 1 == children->size() ? output : fmt::format("{}.output", unit);
    auto child = std::make_shared<torch::nn::AnyModule>(*(children->begin() + static_cast<std::ptrdiff_t>(i)));
    auto forward = [child](const Tensors& inputs) { return Tensors{child->forward<at::Tensor>(inputs.front())}; };
    add_module(unit, child->ptr(), std::move(forward), {value}, {written});
    value = written;
  }
  return *this;
}

void Graph::take_first_rank(const comm::Communicator& communicator) const {
  std::string description;
  std::vector<at::Tensor> all;
  for (const auto& part : parts_) {
    description += fmt::format("unit {}\n{}", part.name,
                               part.module ? description_of(*part.module) : description_of(part.parameters));
    if (!part.module) continue;
    for (const auto& parameter : part.module->parameters()) all.push_back(parameter);
    for (const auto& buffer : part.module->buffers()) all.push_back(buffer);
  }
  check_same(communicator, communicator.world(), description);
  constexpr std::int64_t kCallBytes = std::int64_t{25} << 20;
  broadcast_values(communicator, communicator.world(), all, kCallBytes);
}

GraphSpec Graph::spec() const {
  GraphSpec spec;
  spec.name = "graph";
  const auto known = [](const std::vector<ValueSpec>& values, const std::string& name) {
    return std::ranges::find(values, name, &ValueSpec::name) != values.end();
  };
  Holders holders;
  for (const auto& part : parts_) {
    UnitSpec unit{.name = part.name, .kind = part.module ? "module" : "recorded"};
    unit.inputs = part.inputs;
    unit.outputs = part.outputs;
    for (const auto& input : part.inputs) {
      if (known(spec.values, input) || known(spec.batch_fields, input)) continue;
      spec.batch_fields.push_back({.name = input, .differentiable = false});
    }
    for (const auto& output : part.outputs) {
      spec.values.push_back({.name = output, .opaque = true});
      unit.is_loss |= is_loss_name(output);
      if (is_loss_name(output) && output != part.outputs.front()) {
        throw ConfigError(fmt::format("unit {} writes the loss \"{}\" after another value", part.name, output),
                          {.remedy = "name a unit's loss first; one loss per unit"});
      }
    }
    unit.recomputable = !unit.is_loss;
    unit.parameters = part.module ? module_parameters(part.name, *part.module, holders) : part.parameters;
    for (const auto& parameter : unit.parameters) {
      unit.cost.forward_flops += 2.0 * static_cast<double>(num_elements(parameter.shape));
    }
    unit.cost.input_flops = unit.cost.weight_flops = unit.cost.forward_flops;
    unit.body = part.module ? SharedBody(ops::module_body(unit)) : part.body;
    spec.units.push_back(std::move(unit));
  }
  spec.check();
  mark_gradients(spec);
  return spec;
}

std::vector<std::unique_ptr<Unit>> Graph::make_units(ParameterStore& store, Tables& tables) const {
  std::vector<std::unique_ptr<Unit>> units;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    if (!store.runs(static_cast<int>(p))) {
      units.push_back(nullptr);
      continue;
    }
    const UnitParameters parameters = store.unit(static_cast<int>(p));
    std::unique_ptr<nn::ModuleCode> module;
    if (parts_[p].module) module = std::make_unique<OwnModule>(parts_[p].module, parts_[p].forward, parameters);
    units.push_back(std::make_unique<Unit>(parameters, tables, std::move(module)));
  }
  return units;
}

}  // namespace orthant
