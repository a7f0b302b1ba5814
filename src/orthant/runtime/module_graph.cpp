#include "orthant/runtime/module_graph.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "orthant/base/error.h"

namespace orthant {
namespace {

bool is_loss_name(const std::string& name) {
  return name == "loss" || name.ends_with("_loss");
}

// The user's module with its parameters moved into the unit's flat buffers.
class ModuleUnit : public Unit {
 public:
  ModuleUnit(std::shared_ptr<torch::nn::Module> module, Graph::Forward forward, const UnitParameters& parameters,
             const std::map<std::string, std::string>& names)
      : module_(std::move(module)), forward_(std::move(forward)) {
    at::NoGradGuard no_gradients;
    for (auto& item : module_->named_parameters()) {
      auto& parameter = parameters.named(names.at(item.key()));
      parameters.set_initial(names.at(item.key()), item.value());
      item.value().set_data(parameter.value.variable_data());
      if (parameter.trainable()) item.value().mutable_grad() = parameter.gradient;
    }
  }

  Tensors forward(const Tensors& inputs, nn::Pass& pass) override {
    module_->train(pass.training);
    return forward_(inputs);
  }

  bool accumulates_by_autograd() const override { return true; }
  bool draws_random_numbers() const override { return true; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Graph::Forward forward_;
};

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
        fmt::format("unit {} keeps running statistics ({}): they would depend on the mesh", name, buffer.key()),
        {.remedy = "use a norm without them, such as LayerNorm or GroupNorm"});
  }
  parts_.push_back({name, std::move(module), std::move(forward), std::move(inputs), std::move(outputs)});
}

// Full name of every parameter of every part: its own, or the first holder's when the tensor is shared.
static std::vector<std::map<std::string, std::string>> parameter_names(
    const std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>>& modules) {
  std::map<const void*, std::string> seen;
  std::vector<std::map<std::string, std::string>> names;
  for (const auto& [unit, module] : modules) {
    auto& own = names.emplace_back();
    for (const auto& item : module->named_parameters()) {
      const auto full = fmt::format("{}.{}", unit, item.key());
      own[item.key()] = seen.emplace(item.value().unsafeGetTensorImpl(), full).first->second;
    }
  }
  return names;
}

GraphSpec Graph::spec() const {
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> modules;
  for (const auto& part : parts_) modules.emplace_back(part.name, part.module);
  const auto names = parameter_names(modules);
  GraphSpec spec;
  spec.name = "graph";
  const auto known = [](const std::vector<ValueSpec>& values, const std::string& name) {
    return std::ranges::find(values, name, &ValueSpec::name) != values.end();
  };
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    const auto& part = parts_[p];
    UnitSpec unit;
    unit.name = part.name;
    unit.kind = "module";
    unit.inputs = part.inputs;
    unit.outputs = part.outputs;
    unit.recomputable = true;
    for (const auto& input : part.inputs) {
      if (known(spec.values, input) || known(spec.batch_fields, input)) continue;
      spec.batch_fields.push_back({.name = input, .differentiable = false});
    }
    for (const auto& output : part.outputs) {
      spec.values.push_back({.name = output});
      unit.is_loss |= is_loss_name(output);
    }
    if (unit.is_loss) unit.recomputable = false;
    for (const auto& item : part.module->named_parameters()) {
      const auto& full = names[p].at(item.key());
      if (full != fmt::format("{}.{}", part.name, item.key())) {
        unit.borrowed.push_back(full);
        continue;
      }
      ParameterSpec parameter;
      parameter.name = full;
      parameter.shape = item.value().sizes().vec();
      parameter.init.kind = Init::Kind::given;
      parameter.decay = item.value().dim() > 1;
      parameter.trainable = item.value().requires_grad();
      unit.cost.forward_flops += 2.0 * static_cast<double>(item.value().numel());
      unit.parameters.push_back(std::move(parameter));
    }
    unit.cost.input_flops = unit.cost.weight_flops = unit.cost.forward_flops;
    spec.units.push_back(std::move(unit));
  }
  spec.check();
  return spec;
}

std::vector<std::unique_ptr<Unit>> Graph::make_units(ParameterStore& store, Tables& /*tables*/) const {
  std::vector<std::pair<std::string, std::shared_ptr<torch::nn::Module>>> modules;
  for (const auto& part : parts_) modules.emplace_back(part.name, part.module);
  const auto names = parameter_names(modules);
  std::vector<std::unique_ptr<Unit>> units;
  for (std::size_t p = 0; p < parts_.size(); ++p) {
    units.push_back(
        std::make_unique<ModuleUnit>(parts_[p].module, parts_[p].forward, store.unit(static_cast<int>(p)), names[p]));
  }
  return units;
}

}  // namespace orthant
