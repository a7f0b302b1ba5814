#include "orthant/train/pending_step.h"

#include <ATen/ATen.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "orthant/base/error.h"

namespace orthant {

PendingStep::PendingStep(const at::Tensor& numbers, int ranks, std::function<void()> check)
    : state_(std::make_shared<State>()) {
  state_->ranks = ranks;
  state_->check = std::move(check);
  if (numbers.is_cpu()) {
    state_->on_host = numbers;
    return;
  }
  state_->on_host = at::empty(numbers.sizes(), at::TensorOptions().dtype(at::kDouble).pinned_memory(true));
  state_->on_host.copy_(numbers, /*non_blocking=*/true);
  auto event = std::make_shared<c10::Event>(numbers.device().type());
  event->record(c10::impl::VirtualGuardImpl(numbers.device().type()).getStream(numbers.device()));
  state_->arrived = std::move(event);
}

PendingStep::Numbers PendingStep::peek() const {
  if (!state_) throw InternalError("no step was made whose numbers could be read");
  if (state_->arrived) static_cast<const c10::Event*>(state_->arrived.get())->synchronize();
  if (state_->check) state_->check();
  const auto& on_host = state_->on_host;
  const auto* numbers = on_host.const_data_ptr<double>();
  const double* const peaks = numbers + 6;
  const double* const busy = peaks + state_->ranks;
  const double* const others = busy + state_->ranks;
  const auto most = *std::max_element(peaks, busy);
  // The sign of a NaN says nothing.
  const auto plain = [](double number) { return std::isnan(number) ? std::fabs(number) : number; };
  return {plain(numbers[0]),
          plain(numbers[1]),
          numbers[2] > 0,
          numbers[3] > 0,
          numbers[4] > 0,
          numbers[5] > 0,
          static_cast<std::int64_t>(most),
          {busy, others},
          others[0],
          {others + 1, numbers + on_host.numel()}};
}

PendingStep::Numbers PendingStep::get() const {
  const auto numbers = peek();
  state_->read = true;
  return numbers;
}

bool PendingStep::Numbers::bad() const {
  return !skipped && !(std::isfinite(loss) && std::isfinite(grad_norm));
}

}  // namespace orthant
