#include "orthant/train/optimizer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace orthant {
Optimizer::Optimizer(ParameterStore& store, const OptimizerOptions& options, const MakeBuffer& make)
    : store_(store), options_(options) {
  if (options.kind == "adamw") names_ = {"exp_avg", "exp_avg_sq"};
  if (options.kind == "sgd" && options.momentum > 0) names_ = {"momentum"};
  states_.resize(names_.size());
  classes_.resize(2);
  classes_[0].weight_decay = options.weight_decay;
  for (auto& group : classes_) group.states.resize(names_.size());
  const auto& buffers = store.buffers();
  std::vector<std::int64_t> owners;
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const auto& buffer = *buffers[b];
    for (auto& state : states_) {
      state.push_back(buffer.trainable() ? make(buffer.layout().size, buffer.master().scalar_type()) : at::Tensor());
    }
    if (!buffer.trainable()) continue;
    flat_gradients_.push_back(buffer.gradient());
    owners.push_back(store.owner(b));
    if (!count_.defined()) count_ = at::zeros({}, buffer.master().options().dtype(at::kFloat));
    add_segment(classes_[0], b, 0, buffer.layout().decayed);
    add_segment(classes_[1], b, buffer.layout().decayed, buffer.layout().size);
  }
  if (!owners.empty()) slots_ = at::tensor(owners, at::kLong).to(flat_gradients_.front().device());
}

void Optimizer::add_segment(DecayClass& target, std::size_t buffer, std::int64_t begin, std::int64_t end) {
  if (begin == end) return;
  const auto& flat = *store_.buffers()[buffer];
  target.parameters.push_back(flat.master().narrow(0, begin, end - begin));
  target.gradients.push_back(flat.gradient().narrow(0, begin, end - begin));
  for (std::size_t i = 0; i < states_.size(); ++i) {
    target.states[i].push_back(states_[i][buffer].narrow(0, begin, end - begin));
  }
  target.counts.push_back(count_);
}

void Optimizer::update(double lr, const at::Tensor& norm, const at::Tensor& finite) {
  if (!count_.defined()) return;
  at::NoGradGuard no_gradients;
  const auto skip = finite.logical_not().to(at::kFloat);
  at::Tensor scale;
  if (options_.clip > 0) scale = at::where(finite, (norm / options_.clip).clamp_min(1.0), 1.0);
  // The fused update takes a float32 scale, which is not exact enough for float64 gradients.
  if (scale.defined() && flat_gradients_.front().scalar_type() == at::kDouble) {
    at::_foreach_div_(flat_gradients_, scale);
    scale.reset();
  }
  if (scale.defined()) scale = scale.to(at::kFloat);
  count_.add_(finite);
  for (auto& group : classes_) update_class(group, lr, scale, skip);
  store_.publish();
}

void Optimizer::update_class(DecayClass& group, double lr, const at::Tensor& scale, const at::Tensor& skip) {
  if (group.parameters.empty()) return;
  const auto optional = [](const at::Tensor& t) { return t.defined() ? std::optional<at::Tensor>(t) : std::nullopt; };
  std::vector<at::Tensor> converted;
  if (group.gradients.front().scalar_type() != group.parameters.front().scalar_type()) {
    for (const auto& gradient : group.gradients) {
      converted.push_back(gradient.to(group.parameters.front().scalar_type()));
    }
  }
  const auto& gradients = converted.empty() ? group.gradients : converted;
  if (options_.kind == "adamw") {
    at::_fused_adamw_(group.parameters, gradients, group.states[0], group.states[1], {}, group.counts, lr,
                      options_.beta1, options_.beta2, group.weight_decay, options_.eps, /*amsgrad=*/false,
                      /*maximize=*/false, optional(scale), optional(skip));
  } else {
    at::_fused_sgd_(group.parameters, gradients, group.states.empty() ? at::TensorList() : group.states[0],
                    group.weight_decay, options_.momentum, lr, /*dampening=*/0, /*nesterov=*/false, /*maximize=*/false,
                    /*is_first_step=*/false, optional(scale), optional(skip));
  }
}

std::int64_t Optimizer::num_updates() const {
  return count_.defined() ? count_.to(at::kLong).item<std::int64_t>() : 0;
}

void Optimizer::set_num_updates(std::int64_t updates) {
  if (count_.defined()) count_.fill_(updates);
}

at::Tensor Optimizer::squared_norms() const {
  const auto units = static_cast<std::int64_t>(store_.graph().units.size());
  if (flat_gradients_.empty()) return at::zeros({units}, at::kDouble);
  const auto norms = at::stack(at::_foreach_norm(flat_gradients_, 2, at::kDouble));
  return at::zeros({units}, norms.options()).index_put_({slots_}, norms * norms, /*accumulate=*/true);
}

}  // namespace orthant
