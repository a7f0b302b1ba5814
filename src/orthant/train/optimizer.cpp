#include "orthant/train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

namespace orthant {
namespace {

std::vector<std::string> state_names_of(const OptimizerOptions& options) {
  if (options.kind == "adamw") return {"exp_avg", "exp_avg_sq"};
  if (options.kind == "sgd" && options.momentum > 0) return {"momentum"};
  return {};
}

}  // namespace

int num_states(const OptimizerOptions& options) {
  return static_cast<int>(state_names_of(options).size());
}

Optimizer::Optimizer(ParameterStore& store, const OptimizerOptions& options, const MakeBuffer& make)
    : store_(store), options_(options) {
  names_ = state_names_of(options);
  count_ = make(1, at::kFloat).reshape({}).zero_();
  states_.resize(names_.size());
  classes_.resize(2);
  classes_[0].weight_decay = options.weight_decay;
  for (auto& group : classes_) group.states.resize(names_.size());
  const auto& buffers = store.buffers();
  std::vector<std::int64_t> owners;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const auto& buffer = *buffers[b];
    const auto owned = buffer.owned();
    for (auto& state : states_) {
      state.push_back(buffer.trainable() ? make(owned.size(), buffer.master().scalar_type()) : at::Tensor());
    }
    if (!buffer.trainable()) continue;
    const auto& gradient = buffer.owned_gradient();
    const bool elsewhere = gradient.device() != buffer.master().device();
    if (elsewhere) fetched_[static_cast<int>(b)] = flat_gradients_.size();
    flat_gradients_.push_back(elsewhere ? make(owned.size(), gradient.scalar_type()) : gradient);
    for (const auto& range : store.answered(b)) {
      counted_.push_back(gradient.narrow(0, range.begin - owned.begin, range.size()));
      owners.push_back(store.owner(b));
    }
    const auto decayed = buffer.layout().decayed;
    add_segment(classes_[0], b, flat_gradients_.back(), common(owned, {0, decayed}));
    add_segment(classes_[1], b, flat_gradients_.back(), common(owned, {decayed, buffer.layout().size}));
  }
  if (!fetched_.empty()) store.set_sum_listener([this](int buffer) { fetch(buffer); });
  if (!owners.empty()) slots_ = at::tensor(owners, at::kLong).to(counted_.front().device());
  make_kernels(owners);
}

// Where they serve all segments.
void Optimizer::make_kernels(const std::vector<std::int64_t>& units) {
  std::vector<UpdatedSegment> segments;
  for (const auto& group : classes_) {
    for (std::size_t i = 0; i < group.parameters.size(); ++i) {
      UpdatedSegment segment{.parameters = group.parameters[i],
                             .gradient = group.gradients[i],
                             .states = {},
                             .copy = group.copies[i],
                             .weight_decay = group.weight_decay};
      for (const auto& state : group.states) segment.states.push_back(state[i]);
      if (!OptimizerKernels::serves(segment)) return;
      segments.push_back(std::move(segment));
    }
  }
  if (segments.empty()) return;
  std::vector<CountedSegment> counted;
  for (std::size_t i = 0; i < counted_.size(); ++i) counted.push_back({counted_[i], units[i]});
  const auto num_units = static_cast<std::int64_t>(store_.graph().units.size());
  kernels_ = std::make_unique<OptimizerKernels>(options_, segments, std::move(counted), num_units, count_);
}

void Optimizer::add_segment(DecayClass& target, std::size_t buffer, const at::Tensor& gradient, Range range) {
  if (range.empty()) return;
  const auto& flat = *store_.buffers()[buffer];
  const auto part = [&](const at::Tensor& owned) {
    return owned.narrow(0, range.begin - flat.owned().begin, range.size());
  };
  target.parameters.push_back(flat.master().narrow(range.begin - flat.owned().begin, range.size()));
  target.gradients.push_back(part(gradient));
  const auto copy = flat.published();
  target.copies.push_back(copy.defined() ? part(copy) : at::Tensor());
  for (std::size_t i = 0; i < states_.size(); ++i) target.states[i].push_back(part(states_[i][buffer]));
}

// The copies' stream waits for what was asked of the device so far: the gradient is complete then.
void Optimizer::fetch(int buffer) {
  const auto& gradient = store_.buffers()[static_cast<std::size_t>(buffer)]->owned_gradient();
  const c10::impl::VirtualGuardImpl device(gradient.device().type());
  if (!copies_) copies_ = device.getStreamFromGlobalPool(gradient.device());
  c10::Event complete(gradient.device().type());
  complete.record(device.getStream(gradient.device()));
  complete.block(*copies_);
  const c10::StreamGuard on_copies(*copies_);
  flat_gradients_[fetched_.at(buffer)].copy_(gradient, /*non_blocking=*/true);
}

void Optimizer::wait_for_fetched() {
  if (copies_) copies_->synchronize();
}

void Optimizer::set_lr(double lr) {
  lr_ = lr;
  if (kernels_) kernels_->set_lr(lr);
}

void Optimizer::update(const at::Tensor& norm, const at::Tensor& finite, const at::Tensor& loss_scale) {
  at::NoGradGuard no_gradients;
  if (kernels_) {
    kernels_->update(norm, finite, loss_scale);
    store_.publish_update(/*copied=*/true);
    return;
  }
  wait_for_fetched();
  // With the update on the host this waits for the norm.
  const auto here = [&](const at::Tensor& scalar) { return scalar.to(count_.device()); };
  const auto go_on = here(finite);
  const auto skip = go_on.logical_not().to(at::kFloat);
  at::Tensor scale;
  if (options_.clip > 0) scale = at::where(go_on, (here(norm) / options_.clip).clamp_min(1.0), 1.0);
  if (loss_scale.defined()) scale = scale.defined() ? scale * here(loss_scale) : here(loss_scale).to(at::kDouble);
  // The fused update takes a float32 scale, which is not exact enough for float64 gradients.
  const bool exact = !flat_gradients_.empty() && flat_gradients_.front().scalar_type() == at::kDouble;
  if (scale.defined() && exact) {
    at::_foreach_div_(flat_gradients_, scale);
    scale.reset();
  }
  if (scale.defined()) scale = scale.to(at::kFloat);
  count_.add_(go_on);
  for (auto& group : classes_) update_class(group, scale, skip);
  store_.publish_update();
}

// Masters in halves are joined, updated and split again a piece at a time; the others in one call.
void Optimizer::update_class(DecayClass& group, const at::Tensor& scale, const at::Tensor& skip) const {
  FusedTensors together;
  together.states.resize(group.states.size());
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const bool split = group.parameters[i].is_split();
    group.parameters[i].in_pieces([&](std::int64_t first, const MasterValues& part) {
      FusedTensors alone;
      alone.states.resize(group.states.size());
      auto& tensors = split ? alone : together;
      const auto piece = [&](const at::Tensor& flat) { return flat.narrow(0, first, part.size()); };
      tensors.parameters.push_back(part.values());
      tensors.gradients.push_back(piece(group.gradients[i]));
      for (std::size_t s = 0; s < group.states.size(); ++s) tensors.states[s].push_back(piece(group.states[s][i]));
      if (!split) return;
      update_tensors(alone, group.weight_decay, scale, skip);
      part.set_values(alone.parameters.front());
    });
  }
  if (!together.parameters.empty()) update_tensors(together, group.weight_decay, scale, skip);
}

void Optimizer::update_tensors(const FusedTensors& tensors, double weight_decay, const at::Tensor& scale,
                               const at::Tensor& skip) const {
  const auto optional = [](const at::Tensor& t) { return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt; };
  const auto type = tensors.parameters.front().scalar_type();
  std::vector<at::Tensor> gradients;
  for (const auto& gradient : tensors.gradients) gradients.push_back(gradient.to(type));
  if (options_.kind == "adamw") {
    const std::vector<at::Tensor> counts(tensors.parameters.size(), count_);
    at::_fused_adamw_(tensors.parameters, gradients, tensors.states[0], tensors.states[1], {}, counts, lr_,
                      options_.beta1, options_.beta2, weight_decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, optional(scale), optional(skip));
  } else {
    at::_fused_sgd_(tensors.parameters, gradients, tensors.states.empty() ? at::TensorList() : tensors.states[0],
                    weight_decay, options_.momentum, lr_, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false, optional(scale), optional(skip));
  }
}

std::int64_t Optimizer::state_bytes() const {
  std::int64_t bytes = 0;
  for (const auto& buffers : states_) {
    for (const auto& state : buffers) bytes += state.defined() ? static_cast<std::int64_t>(state.nbytes()) : 0;
  }
  return bytes;
}

std::int64_t Optimizer::num_updates() const {
  return count_.to(at::kLong).item<std::int64_t>();
}

void Optimizer::set_num_updates(std::int64_t updates) {
  count_.fill_(updates);
}

at::Tensor Optimizer::squared_norms() const {
  if (kernels_) return kernels_->squared_norms();
  const auto units = static_cast<std::int64_t>(store_.graph().units.size());
  if (counted_.empty()) return at::zeros({units}, at::kDouble);
  const auto norms = at::stack(at::_foreach_norm(counted_, 2, at::kDouble));
  return at::zeros({units}, norms.options()).index_put_({slots_}, norms * norms, /*accumulate=*/true);
}

}  // namespace orthant
