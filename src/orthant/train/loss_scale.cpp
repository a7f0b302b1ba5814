#include "orthant/train/loss_scale.h"

#include <ATen/ATen.h>

namespace orthant {

LossScaleOptions default_loss_scale(const Precision& precision) {
  LossScaleOptions options;
  options.dynamic = precision.compute == DType::float16 || precision.reduce == DType::float16;
  if (options.dynamic) options.initial = 65536;
  return options;
}

LossScale::LossScale(const LossScaleOptions& options, at::Device device) : options_(options) {
  if (!options.dynamic && options.initial == 1) return;
  value_ = at::full({}, options.initial, at::TensorOptions().dtype(at::kDouble).device(device));
  good_steps_ = at::zeros_like(value_);
}

void LossScale::update(const at::Tensor& finite) {
  if (!options_.dynamic) return;
  const auto good = (good_steps_ + 1) * finite;
  const auto due = good.ge(static_cast<double>(options_.interval));
  // One that began above the bound stays until it overflows.
  const auto grown = at::maximum((value_ * options_.growth).clamp_max(kMostLossScale), value_);
  const auto fallen = (value_ * options_.backoff).clamp_min(1.0);
  value_.copy_(at::where(finite, at::where(due, grown, value_), fallen));
  good_steps_.copy_(good * due.logical_not());
}

at::Tensor LossScale::may_mend(const at::Tensor& loss, const at::Tensor& norm) const {
  if (!options_.dynamic) return at::zeros_like(norm);
  return (loss.isfinite() & norm.isfinite().logical_not() & value_.gt(1.0)).to(norm.scalar_type());
}

LossScale::State LossScale::state() const {
  if (!options_.dynamic) return {options_.initial, 0};
  return {value_.item<double>(), static_cast<std::int64_t>(good_steps_.item<double>())};
}

void LossScale::set_state(const State& state) {
  if (!options_.dynamic) return;
  value_.fill_(state.value);
  good_steps_.fill_(static_cast<double>(state.good_steps));
}

}  // namespace orthant
