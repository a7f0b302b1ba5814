#include "orthant/runtime/executor.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/launch/activity_board.h"
#include "orthant/nn/scalar_type.h"
#include "orthant/ops/exchange/token_values.h"
#include "orthant/runtime/executor_step.h"
#include "orthant/trace/recorder.h"

namespace orthant {
namespace {

// Until all that was asked of the device so far has ended.
void wait_for_device(const std::vector<Microbatch>& microbatches) {
  const auto device = microbatches.front().fields.begin()->second.device();
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace

std::map<std::string, at::Tensor> Executor::train(const std::vector<Action>& actions,
                                                  const std::vector<Microbatch>& microbatches, const StepFacts& facts,
                                                  ParameterKeeper* keeper) {
  Step step{microbatches, facts, std::vector<Step::Row>(microbatches.size())};
  begin_list(step, actions);
  step.gradients_in_forward = gradients_in_forward(actions, graph_);
  expert_loads_.assign(graph_.units.size(), at::Tensor());
  make_texts(actions, facts.recorder, trained_);
  const launch::ActivityMoment moment{launch::ActivityMoment::Kind::step, facts.step};
  if (facts.lanes != nullptr) facts.lanes->begin();
  for (std::size_t i = 0; i < actions.size(); ++i) {
    const auto& action = actions[i];
    if (facts.activity != nullptr) facts.activity->say(moment, trained_.texts[i]);
    if (facts.wait_for_device) wait_for_device(microbatches);
    trace::Span span(facts.recorder, facts.recorder != nullptr ? trained_.events[i] : trace::Event());
    run(step, action, keeper);
    if (facts.wait_for_device) wait_for_device(microbatches);
    if (facts.activity != nullptr) span.set_bytes(facts.activity->tensor_bytes().load(std::memory_order_relaxed));
  }
  if (facts.lanes != nullptr) facts.lanes->end();
  if (links_ != nullptr) {
    links_->finish();
    links_->end();
  }
  std::map<std::string, at::Tensor> losses;
  for (const auto& row : step.rows) {
    for (const auto& [value, sum] : row.losses) {
      auto& total = losses[graph_.values[to_index(value)].name];
      total = total.defined() ? total + sum : sum;
    }
  }
  return losses;
}

void Executor::make_texts(const std::vector<Action>& actions, trace::Recorder* recorder, Texts& texts) const {
  if (texts.actions == actions && texts.recorder == recorder) return;
  texts.actions = actions;
  texts.recorder = recorder;
  texts.texts.clear();
  texts.events.clear();
  for (const auto& action : actions) {
    texts.texts.push_back(to_string(action, graph_));
    if (recorder != nullptr) texts.events.push_back(event_of(action, *recorder));
  }
}

// Its name has no microbatch, which is told beside it: names are few.
trace::Event Executor::event_of(const Action& action, trace::Recorder& recorder) const {
  trace::Event event;
  event.kind = trace::EventKind::action;
  event.tag = static_cast<trace::ActionNumber>(action.kind);
  event.microbatch = static_cast<std::int16_t>(action.microbatch);
  const bool of_value = action.unit < 0;
  int unit = action.unit;
  if (of_value) unit = action.consumer >= 0 ? action.consumer : makers_[to_index(action.value)];
  event.unit = static_cast<std::int16_t>(unit);
  if (to_index(unit) < unit_stages_.size()) event.stage = static_cast<std::int16_t>(unit_stages_[to_index(unit)]);
  event.name = recorder.name(
      fmt::format("{} {}", action_name(action.kind),
                  of_value ? graph_.values[to_index(action.value)].name : graph_.units[to_index(unit)].name));
  return event;
}

void Executor::run(Step& step, const Action& action, ParameterKeeper* keeper) {
  if (step.facts.lanes == nullptr) return act(step, action, keeper);
  const c10::StreamGuard on_lane(step.facts.lanes->of(action.unit));
  act(step, action, keeper);
}

void Executor::act(Step& step, const Action& action, ParameterKeeper* keeper) try {
  if (keeper != nullptr) prepare(step, action, *keeper);
  switch (action.kind) {
    case ActionKind::forward:
      forward(step, action.unit, action.microbatch);
      return;
    case ActionKind::backward:
      backward(step, action.unit, action.microbatch, false);
      return;
    case ActionKind::backward_input:
      backward(step, action.unit, action.microbatch, true);
      return;
    case ActionKind::backward_weight:
      run_deferred(step, action.unit, action.microbatch);
      return;
    case ActionKind::gather:
      if (keeper != nullptr) keeper->gather(action.unit);
      return;
    case ActionKind::free:
      if (keeper != nullptr) keeper->free(action.unit);
      return;
    case ActionKind::reduce:
      if (keeper != nullptr) keeper->reduce(action.unit, action.microbatch);
      return;
    case ActionKind::send:
    case ActionKind::receive:
    case ActionKind::send_gradient:
    case ActionKind::receive_gradient:
      exchange(step, action);
      return;
  }
} catch (...) {
  if (keeper != nullptr) keeper->failed();
  throw;
}

void Executor::prepare(const Step& step, const Action& action, ParameterKeeper& keeper) const {
  const bool forward = action.kind == ActionKind::forward;
  const bool input = action.kind == ActionKind::backward || action.kind == ActionKind::backward_input;
  const bool weight = action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight;
  if (!forward && (!(input || weight) || !wirings_[to_index(action.unit)].has_backward)) return;
  const UnitSpec& unit = graph_.units[to_index(action.unit)];
  const bool reads = forward || (input && unit.backward_reads_parameters) || (weight && unit.logits.has_value());
  if (reads) keeper.need_values(action.unit);
  // A module makes gradients of its weights with those of its inputs, however the backward is split.
  const bool with_inputs = input && unit.runs_module();
  const bool in_forward = forward && step.gradients_in_forward.contains({action.unit, action.microbatch});
  if (weight || with_inputs || in_forward) keeper.need_gradients(action.unit);
}

void Executor::begin_pass(Frame& frame, const Step& step, int unit, int m) const {
  if (step.facts.recorder != nullptr && step.facts.recorder->captures_operations()) {
    frame.recorder = step.facts.recorder;
    frame.recorded.kind = trace::EventKind::operation;
    frame.recorded.unit = static_cast<std::int16_t>(unit);
    frame.recorded.microbatch = static_cast<std::int16_t>(m);
    if (to_index(unit) < unit_stages_.size())
      frame.recorded.stage = static_cast<std::int16_t>(unit_stages_[to_index(unit)]);
  }
  auto& pass = frame.pass;
  const auto& microbatch = step.microbatches[to_index(m)];
  pass.unit = graph_.units[to_index(unit)].name;
  pass.seed = step.facts.seed;
  pass.step = step.facts.step;
  pass.first_row = microbatch.first_row;
  pass.repeatable = step.facts.repeatable;
  pass.products = step.facts.products;
  pass.streams = step.facts.streams;
  pass.tensor = tensor_;
  pass.cached = step.facts.cached;
  if (step.facts.keys != nullptr) pass.keys = &(*step.facts.keys)[to_index(unit)];
  const auto ids = microbatch.fields.find(wirings_[to_index(unit)].tokens_of);
  if (ids == microbatch.fields.end()) return;
  pass.rows = ids->second.size(0);
  pass.sequence = ids->second.size(1);
  if (const auto rows = microbatch.token_rows.find(ids->first); rows != microbatch.token_rows.end()) {
    pass.token_rows = &rows->second;
  }
  pass.experts = experts_;
  if (context_ == nullptr) return;
  if (pass.sequence < least_sequence(context_->sharing())) {
    throw DataError(short_rows_text(pass.sequence, context_->sharing()),
                    {.remedy = short_rows_remedy(context_->sharing())});
  }
  pass.context = context_;
  pass.positions = context_->positions(pass.sequence);
  pass.sequence = pass.positions.size();
}

at::Tensor Executor::whole_value(int value, const at::Tensor& held, const nn::Pass& pass) const {
  const ValueSpec& spec = graph_.values[to_index(value)];
  at::Tensor whole = held;
  if (spec.sequence_sharded) {
    whole = nn::whole_tokens(held, pass);
  } else if (spec.tp && tensor_ != nullptr) {
    whole = nn::whole_channels(held, spec.shape.back(), pass);
  }
  if (context_ == nullptr) return whole;
  if (!spec.tokens_of.empty()) return nn::whole_sequences(whole, pass);
  // A sum over tokens, or of rows: then it is coordinate 0's.
  const bool counts = is_loss_[to_index(value)] ? loss_counts_[to_index(value)] : context_->coordinate() == 0;
  const at::Tensor sum = counts ? whole.clone() : at::zeros_like(whole);
  context_->sum(sum, {})->wait();
  return sum;
}

Tensors Executor::take_inputs(Step& step, int unit, int m) {
  Tensors inputs;
  for (const auto& input : wirings_[to_index(unit)].inputs) {
    if (input.value < 0) {
      const auto& fields = step.microbatches[to_index(m)].fields;
      const auto found = fields.find(input.name);
      if (found == fields.end()) {
        throw DataError(fmt::format("unit {} reads the batch field \"{}\", which the data does not have",
                                    graph_.units[to_index(unit)].name, input.name));
      }
      inputs.push_back(found->second);
      continue;
    }
    inputs.push_back(take_value(step, input.value, m));
    if (step.facts.lanes != nullptr) step.facts.lanes->hand_over(inputs.back(), makers_[to_index(input.value)], unit);
    if (!inputs.back().defined()) {
      throw InternalError(fmt::format("unit {} microbatch {} runs before its input {}",
                                      graph_.units[to_index(unit)].name, m, input.name));
    }
  }
  return inputs;
}

void Executor::forward(Step& step, int unit, int m) {
  const auto& wiring = wirings_[to_index(unit)];
  auto& row = step.rows[to_index(m)];
  auto run = std::make_unique<UnitRun>();
  begin_pass(run->frame, step, unit, m);
  run->frame.pass.owns_inputs = wiring.owns_inputs;
  auto inputs = take_inputs(step, unit, m);
  if (const auto experts = graph_.units[to_index(unit)].num_experts(); experts > 0) {
    at::Tensor& loads = expert_loads_[to_index(unit)];
    if (!loads.defined()) loads = at::zeros({experts + 1}, inputs.front().options().dtype(at::kLong));
    run->frame.pass.expert_loads = &loads;
  }
  at::Tensor seed;  // the gradient of a loss whose whole backward follows before anything else of its unit
  if (wiring.has_backward && step.gradients_in_forward.contains({unit, m})) {
    const auto type = scalar_type(graph_.values[to_index(wiring.outputs.front())].dtype);
    seed = loss_gradient(step, wiring.outputs.front(), inputs.front().options().dtype(type));
  }
  const Unit& runner = *units_[to_index(unit)];
  run->program = seed.defined() ? &runner.gradients_in_forward() : &runner.training();
  auto outputs = run->program->forward(run->frame, std::move(inputs), seed);
  for (const auto& output : outputs) run->output_options.push_back(output.options());
  if (observer_ != nullptr) observer_->wrote(unit, m, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const int value = wiring.outputs[i];
    if (is_loss_[to_index(value)]) {
      if (outputs[i].scalar_type() == at::kHalf) {
        throw ConfigError(
            fmt::format("unit {}: its loss is a float16 sum, which ends at 65504", graph_.units[to_index(unit)].name),
            {.remedy = "compute the loss from float32, as in logits.to(torch::kFloat)"});
      }
      const at::Tensor loss = outputs[i].to(at::kDouble);
      row.losses[value] = loss_counts_[to_index(value)] ? loss : at::zeros_like(loss);
    }
    put_value(step, value, m, outputs[i]);
  }
  if (wiring.has_backward) row.runs[to_index(unit)] = std::move(run);
}

at::Tensor Executor::gradient_of(Step& step, int value, int m, const at::TensorOptions& loss_options) {
  at::Tensor sum;
  auto& gradients = step.rows[to_index(m)].gradients;
  const auto& readers = readers_[to_index(value)];
  for (auto reader = readers.rbegin(); reader != readers.rend(); ++reader) {
    auto node = gradients.extract({value, *reader});
    if (node.empty() || !node.mapped().defined()) continue;
    if (step.facts.lanes != nullptr) step.facts.lanes->hand_over(node.mapped(), *reader, makers_[to_index(value)]);
    sum = sum.defined() ? sum + node.mapped() : std::move(node.mapped());
  }
  if (is_loss_[to_index(value)]) {
    const auto seed = loss_gradient(step, value, loss_options);
    sum = sum.defined() ? sum + seed : seed;
  }
  return sum;
}

// Of a loss value, besides what its readers hand back.
at::Tensor Executor::loss_gradient(const Step& step, int value, const at::TensorOptions& options) const {
  const auto found = step.facts.loss_factors.find(graph_.values[to_index(value)].name);
  const bool counts = loss_counts_[to_index(value)];
  const auto& scale = step.facts.loss_scale;
  if (!counts || found == step.facts.loss_factors.end()) {
    const double factor = counts ? 1.0 : 0.0;
    return scale.defined() ? (scale * factor).to(options) : at::full({}, factor, options);
  }
  const at::Tensor& factor = found->second;
  return (scale.defined() ? scale * factor : factor).to(options, /*non_blocking=*/false, /*copy=*/true);
}

Tensors Executor::input_gradients(UnitRun& run, Tensors gradients, bool defer_weights) {
  // Nothing of the loss reaches a unit whose outputs have no gradient.
  run.reached = std::ranges::any_of(gradients, [](const at::Tensor& gradient) { return gradient.defined(); });
  if (!run.reached) return Tensors(run.program->program().inputs.size());
  return run.program->backward(run.frame, std::move(gradients), defer_weights ? Part::inputs : Part::both);
}

void Executor::backward(Step& step, int unit, int m, bool defer_weights) {
  const auto& wiring = wirings_[to_index(unit)];
  if (!wiring.has_backward) return;
  auto& row = step.rows[to_index(m)];
  auto& run = row.runs[to_index(unit)];
  if (!run) {
    throw InternalError(
        fmt::format("backward of unit {} microbatch {} without its forward", graph_.units[to_index(unit)].name, m));
  }
  Tensors gradients;
  for (std::size_t i = 0; i < wiring.outputs.size(); ++i) {
    gradients.push_back(gradient_of(step, wiring.outputs[i], m, run->output_options[i]));
  }
  const Tensors handed = input_gradients(*run, std::move(gradients), defer_weights);
  for (std::size_t i = 0; i < wiring.inputs.size(); ++i) {
    const auto& input = wiring.inputs[i];
    if (!input.needs_gradient) continue;
    const auto& gradient = handed[i];
    if (observer_ != nullptr) observer_->handed_back(unit, m, i, gradient);
    row.gradients[{input.value, unit}] = on_edge(gradient, graph_.values[to_index(input.value)]);
  }
  if (!defer_weights) run.reset();
}

void Executor::run_deferred(Step& step, int unit, int m) {
  if (!wirings_[to_index(unit)].has_backward) return;
  auto run = std::move(step.rows[to_index(m)].runs[to_index(unit)]);
  if (!run) {
    throw InternalError(fmt::format("weight gradients of unit {} microbatch {} before its input gradients",
                                    graph_.units[to_index(unit)].name, m));
  }
  if (run->reached) run->program->weights(run->frame);
}

std::map<std::string, at::Tensor> Executor::evaluate(const std::vector<Action>& actions, const Microbatch& microbatch,
                                                     const StepFacts& facts, const std::vector<std::string>& wanted,
                                                     ParameterKeeper* keeper) {
  at::NoGradGuard no_gradients;
  const std::vector<Microbatch> microbatches = {microbatch};
  Step step{microbatches, facts, std::vector<Step::Row>(1)};
  begin_list(step, actions);
  make_texts(actions, facts.recorder, evaluated_);
  const launch::ActivityMoment moment{launch::ActivityMoment::Kind::evaluation, facts.step};
  std::map<std::string, at::Tensor> found;
  for (std::size_t a = 0; a < actions.size(); ++a) {
    const auto& action = actions[a];
    if (facts.activity != nullptr) facts.activity->say(moment, evaluated_.texts[a]);
    const trace::Span span(facts.recorder, facts.recorder != nullptr ? evaluated_.events[a] : trace::Event());
    if (action.kind != ActionKind::forward) {
      run(step, action, keeper);
      continue;
    }
    if (keeper != nullptr) prepare(step, action, *keeper);
    UnitRun run;
    begin_pass(run.frame, step, action.unit, 0);
    run.frame.pass.training = false;
    const auto outputs =
        units_[to_index(action.unit)]->evaluating().forward(run.frame, take_inputs(step, action.unit, 0));
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const int value = wirings_[to_index(action.unit)].outputs[i];
      const auto& name = graph_.values[to_index(value)].name;
      if (std::ranges::find(wanted, name) != wanted.end()) {
        found[name] = whole_value(value, outputs[i], run.frame.pass);
      }
      put_value(step, value, 0, outputs[i]);
    }
  }
  // What was sent is on its way to stages that have not come so far: nobody waits for it here.
  if (links_ != nullptr) links_->end();
  return found;
}

}  // namespace orthant
