#include "orthant/train/step_watch.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/index.h"
#include "orthant/parallel/data/parameter_store.h"

namespace orthant {
StepWatch::StepWatch(const GraphSpec& graph, ParameterStore& store, const TrainerOptions& options,
                     const std::vector<bool>& runs_here, Poisoner poisoner)
    : graph_(graph),
      store_(store),
      device_(options.device),
      ranks_(control_group(options)),
      poisoner_(std::move(poisoner)),
      microbatches_(options.microbatches),
      looks_per_use_(store.policy().accumulate_sharded ? options.microbatches : 1),
      entries_(store, options.device) {
  make_slots();
  for (const auto& unit : graph.units) awaited_losses_.push_back(awaited_loss(unit, runs_here));
  store_.set_use_listener([this](std::size_t buffer, int unit, const at::Tensor& gradient) {
    poisoner_.gradient(buffer, unit, gradient);
    saw_gradient(buffer, unit, gradient);
  });
}

void StepWatch::make_slots() {
  std::int64_t slots = 0;
  const auto take = [&slots](std::size_t count) {
    const auto first = slots;
    slots += static_cast<std::int64_t>(count);
    return first;
  };
  for (const auto& unit : graph_.units) {
    output_slots_.push_back(take(unit.outputs.size() * to_index(microbatches_)));
    input_slots_.push_back(take(unit.inputs.size() * to_index(microbatches_)));
  }
  use_slots_.begin = slots;
  for (std::size_t b = 0; b < store_.buffers().size(); ++b) {
    const auto& layout = store_.buffers()[b]->layout();
    if (!layout.trainable || !store_.adds_gradients(b)) continue;
    for (const int unit : layout.users) uses_.push_back({.buffer = b, .unit = unit, .first_slot = 0, .seen = 0});
  }
  std::ranges::stable_sort(uses_, {}, &Use::unit);
  for (auto& use : uses_) use.first_slot = take(to_index(looks_per_use_));
  use_slots_.end = slots;
  watch_.emplace(slots, device_);
}

int StepWatch::awaited_loss(const UnitSpec& unit, const std::vector<bool>& runs_here) const {
  if (!device_.is_cpu() || unit.is_loss) return -1;
  int loss = -1;
  for (const auto& output : unit.outputs) {
    const auto readers = graph_.consumers(output);
    if (readers.size() != 1 || (loss >= 0 && loss != readers.front())) return -1;
    loss = readers.front();
  }
  return loss >= 0 && graph_.units[to_index(loss)].is_loss && runs_here[to_index(loss)] ? loss : -1;
}

std::int64_t StepWatch::output_slot(int unit, int microbatch) const {
  return output_slots_[to_index(unit)] +
         static_cast<std::int64_t>(graph_.units[to_index(unit)].outputs.size()) * microbatch;
}

void StepWatch::begin(std::int64_t step) {
  waiting_.clear();  // of a step that was broken off
  before_ = std::exchange(newest_, {});
  watch_->begin();
  if (poisoner_.damages_parameters(step)) before_gradients();
  poisoner_.begin_step(step, store_);
  // Parameters that something else than an update wrote are looked at now.
  if (updates_verdict_.defined() && std::exchange(fills_seen_, store_.num_fills()) != store_.num_fills()) {
    updates_verdict_.copy_(look_at_parameters());
  }
}

void StepWatch::begin_on_device() {
  watch_->begin_on_device();
  entries_.begin_on_device();
  for (auto& use : uses_) use.seen = 0;
}

void StepWatch::before_gradients() {
  if (!entries_.takes_notes()) look_back(before_, /*steps_ago=*/1);
}

void StepWatch::wrote(int unit, int microbatch, Tensors& outputs) {
  poisoner_.outputs(unit, microbatch, outputs);
  auto slot = output_slot(unit, microbatch);
  if (const int loss = awaited_losses_[to_index(unit)]; loss >= 0) {
    for (const auto& output : outputs) waiting_[{loss, microbatch}].push_back({slot++, output.detach()});
    return;
  }
  for (const auto& output : outputs) watch_->look(slot++, output);
  const auto waited = waiting_.extract({unit, microbatch});
  if (waited.empty() || !watch_->is_bad(output_slot(unit, microbatch))) return;
  for (const auto& [waiting_slot, output] : waited.mapped()) watch_->look(waiting_slot, output);
}

void StepWatch::handed_back(int unit, int microbatch, std::size_t input, const at::Tensor& gradient) {
  const bool of_good_loss = graph_.units[to_index(unit)].is_loss && !watch_->is_bad(output_slot(unit, microbatch));
  if (device_.is_cpu() && of_good_loss) return;
  const auto first = input_slots_[to_index(unit)];
  watch_->look(
      first + static_cast<std::int64_t>(graph_.units[to_index(unit)].inputs.size() * to_index(microbatch) + input),
      gradient);
}

void StepWatch::saw_gradient(std::size_t buffer, int unit, const at::Tensor& gradient) {
  const auto use =
      std::ranges::find_if(uses_, [&](const Use& one) { return one.buffer == buffer && one.unit == unit; });
  if (use == uses_.end()) return;
  if (use->seen == looks_per_use_) {
    throw InternalError(fmt::format("the gradient of buffer {} was complete {} times in a step",
                                    store_.buffers()[buffer]->layout().name, use->seen + 1));
  }
  watch_->look(use->first_slot + use->seen++, gradient);
}

at::Tensor StepWatch::gradients_verdict() const {
  return watch_->verdict(use_slots_);
}

at::Tensor StepWatch::parameters_verdict() const {
  return updates_verdict_.defined() ? updates_verdict_ : look_at_parameters();
}

at::Tensor StepWatch::look_at_parameters() const {
  bool finite = true;
  std::vector<at::Tensor> on_device;
  for (const auto& buffer : store_.buffers()) {
    const auto& stored = buffer->master().exponents();
    if (!stored.is_cpu()) {
      on_device.push_back(stored);
    } else if (finite) {
      finite = all_finite(stored);
    }
  }
  const double bad = std::numeric_limits<double>::quiet_NaN();
  const auto verdict = at::full({1}, finite ? 0.0 : bad, at::TensorOptions().dtype(at::kDouble).device(device_));
  if (on_device.empty()) return verdict;
  // Sums of absolute values, which do not overflow: 0 times what is not finite is NaN.
  const auto sums = at::_foreach_norm(on_device, 1, at::kDouble);
  return verdict + at::stack(sums).mul(0).sum();
}

void StepWatch::look_back(Record& record, int steps_ago) const {
  if (record.looked || !record.step) return;
  record.looked = true;
  if (record.step->peek().bad()) record.found = findings(steps_ago);
}

RankFindings StepWatch::findings(int steps_ago) const {
  RankFindings found;
  const auto bad = watch_->bad(steps_ago);
  const auto any = [&](std::int64_t first, std::size_t count) {
    const auto begin = bad.begin() + first;
    return std::find(begin, begin + static_cast<std::ptrdiff_t>(count), true) !=
           begin + static_cast<std::ptrdiff_t>(count);
  };
  for (int u = 0; u < static_cast<int>(graph_.units.size()); ++u) {
    const auto& unit = graph_.units[to_index(u)];
    if (any(output_slots_[to_index(u)], unit.outputs.size() * to_index(microbatches_))) found.outputs.push_back(u);
    if (any(input_slots_[to_index(u)], unit.inputs.size() * to_index(microbatches_)))
      found.input_gradients.push_back(u);
  }
  for (const auto& use : uses_) {
    if (!any(use.first_slot, to_index(looks_per_use_))) continue;
    auto& told = found.uses.emplace_back(RankFindings::Use{.unit = use.unit, .parameters = {}});
    for (const auto& entry : store_.buffers()[use.buffer]->layout().entries) told.parameters.push_back(entry.parameter);
  }
  for (std::size_t b = 0; b < store_.buffers().size(); ++b) {
    const auto& buffer = *store_.buffers()[b];
    const int user = buffer.layout().users.front();
    for (const auto& name : entries_.parameters(b, steps_ago)) found.parameters.push_back({user, name});
    if (!buffer.trainable()) continue;
    const auto names = entries_.gradients(b, steps_ago);
    found.sums.insert(found.sums.end(), names.begin(), names.end());
    if (!names.empty() && !store_.adds_gradients(b)) found.uses.push_back({user, names});
  }
  std::ranges::stable_sort(found.uses, {}, &RankFindings::Use::unit);
  return found;
}

BadStep StepWatch::explain() {
  const bool newest = newest_.step && newest_.step->was_read();
  auto& record = newest ? newest_ : before_;
  look_back(record, newest ? 0 : 1);  // a rank without a backward has not looked yet
  std::vector<RankFindings> all;
  for (const auto& text : ranks_.gather_texts(record.found.to_text())) all.push_back(RankFindings::from_text(text));
  return blame(graph_, all);
}

}  // namespace orthant
