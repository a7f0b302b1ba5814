#include "orthant/interpret/unit_program.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/interpret/binders.h"
#include "orthant/interpret/operation_work.h"
#include "orthant/ops/linear/projection.h"
#include "orthant/trace/recorder.h"

namespace orthant {
namespace {

// Asks for no parameter that the program does not use: whoever keeps them expects a gradient of each that is asked for.
nn::Parameter& parameter_of(const BodyParameter& use, const UnitParameters& parameters) {
  return use.joined ? parameters.joined(use.name) : parameters[use.name];
}

at::ScalarType dtype_of(const Program& program, const UnitParameters& parameters) {
  if (program.parameters.empty()) return at::kFloat;
  return parameter_of(program.parameters.front().use, parameters).value.scalar_type();
}

}  // namespace

BoundProgram::BoundProgram(Program program, const UnitParameters& parameters, Tables& tables, nn::TensorAxis* tensor,
                           nn::ModuleCode* module)
    : program_(std::move(program)), compute_(dtype_of(program_, parameters)) {
  forward_ = bind(program_.forward, parameters, tables, tensor, module);
  both_ = bind(program_.both, parameters, tables, tensor, module);
  inputs_ = bind(program_.input_part, parameters, tables, tensor, module);
  weights_ = bind(program_.weight_part, parameters, tables, tensor, module);
}

BoundProgram::List BoundProgram::bind(const std::vector<Operation>& operations, const UnitParameters& parameters,
                                      Tables& tables, nn::TensorAxis* tensor, nn::ModuleCode* module) {
  List list;
  for (const auto& operation : operations) {
    Binding binding{program_, operation, {}, parameters.spec().name, tables, tensor, module};
    for (const int number : operation.parameters) {
      if (number < 0) {
        binding.parameters.push_back(nullptr);
        continue;
      }
      binding.parameters.push_back(&parameter_of(program_.parameters[to_index(number)].use, parameters));
    }
    std::int64_t elements = 0;
    for (const auto* parameter : binding.parameters) elements += parameter != nullptr ? parameter->value.numel() : 0;
    list.push_back({bind_operation(binding), operation.frees, &operation, elements});
  }
  return list;
}

void BoundProgram::run_recorded(const Bound& bound, Frame& frame) const {
  auto event = frame.recorded;
  event.name = frame.recorder->name(bound.operation->name);
  event.flops = operation_flops(program_, *bound.operation, frame, bound.parameter_elements);
  event.bytes = operation_bytes(*bound.operation, frame, bound.parameter_elements);
  const trace::Span span(frame.recorder, event);
  bound.step(frame);
}

void BoundProgram::run(const List& list, Frame& frame) const {
  nn::BelowAutograd below;
  for (const auto& bound : list) {
    if (frame.recorder != nullptr) {
      run_recorded(bound, frame);
    } else {
      bound.step(frame);
    }
    for (const int value : bound.frees) frame.free(value);
  }
}

at::Tensor BoundProgram::as_value(int value, const at::Tensor& tensor) const {
  if (program_.values[to_index(value)].number == Number::opaque) return tensor;
  return tensor.dim() > 2 ? nn::as_matrix(tensor) : tensor.contiguous();
}

at::Tensor BoundProgram::on_edge(int value, const at::Tensor& matrix, const Frame& frame) const {
  const ValuePlace& at = program_.values[to_index(value)].at;
  if (at.dims.size() != 2 || at.dims[0].sym != Sym::tokens || at.cuts_tokens()) return matrix;
  return matrix.view({frame.pass.rows, frame.pass.sequence, matrix.size(1)});
}

void BoundProgram::find_sizes(nn::Pass& pass, const Tensors& inputs) const {
  if (pass.sequence > 0) return;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const ProgramValue& value = program_.values[to_index(program_.inputs[i])];
    const auto& dims = value.at.dims;
    if (value.number == Number::opaque || dims.empty()) continue;
    const bool tokens = dims[0].sym == Sym::tokens;
    const bool fits =
        inputs[i].dim() == static_cast<std::int64_t>(dims.size()) + (tokens ? 1 : 0) &&
        (dims.size() == 1 || inputs[i].size(-1) == dims[1].factor) &&
        (!tokens || pass.sequence == 0 || (inputs[i].size(0) == pass.rows && inputs[i].size(1) == pass.sequence));
    if (!fits) {
      throw ConfigError(
          fmt::format("unit {} reads {} as [rows{}{}]; it is {}", pass.unit, value.name, tokens ? ", tokens" : "",
                      dims.size() == 1 ? "" : fmt::format(", {}", dims[1].factor), c10::str(inputs[i].sizes())),
          {.remedy = "let its writer shape it so, or record the unit for what it gets"});
    }
    if (!tokens) continue;
    pass.rows = inputs[i].size(0);
    pass.sequence = inputs[i].size(1);
  }
}

Tensors BoundProgram::forward(Frame& frame, Tensors inputs, const at::Tensor& seed) const {
  find_sizes(frame.pass, inputs);
  frame.compute = compute_;
  frame.values.resize(program_.values.size());
  frame.arriving.resize(program_.values.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    frame[program_.inputs[i]] = as_value(program_.inputs[i], inputs[i]);
    inputs[i].reset();
  }
  if (seed.defined()) frame[program_.seeds.front()] = seed;
  run(forward_, frame);
  Tensors outputs;
  for (const int value : program_.outputs) {
    outputs.push_back(on_edge(value, frame[value], frame));
    if (std::ranges::find(program_.kept, value) == program_.kept.end()) frame[value].reset();
  }
  return outputs;
}

Tensors BoundProgram::backward(Frame& frame, Tensors gradients, Part part) const {
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const int seed = program_.seeds[i];
    if (seed >= 0 && gradients[i].defined()) frame[seed] = as_value(seed, gradients[i]);
    gradients[i].reset();
  }
  run(part == Part::both ? both_ : inputs_, frame);
  Tensors found;
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    const int gradient = program_.gradients[i];
    found.push_back(gradient < 0 ? at::Tensor() : on_edge(program_.inputs[i], frame[gradient], frame));
  }
  for (const int gradient : program_.gradients) {
    const bool later = std::ranges::find(program_.deferred, gradient) != program_.deferred.end();
    if (gradient >= 0 && !(later && part == Part::inputs)) frame[gradient].reset();
  }
  return found;
}

void BoundProgram::weights(Frame& frame) const {
  run(weights_, frame);
}

}  // namespace orthant
