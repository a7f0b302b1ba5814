#include "orthant/runtime/finite_watch.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <atomic>
#include <limits>

#include "orthant/nn/device_kernels.h"
#include "orthant/nn/finite_device.h"

namespace orthant {
namespace {

constexpr std::int64_t kBlock = std::int64_t{1} << 12;  // elements between looks at what was found
constexpr std::int64_t kGrain = std::int64_t{1} << 16;  // that make a thread worth while

// An IEEE number is NaN or infinite when all bits of its exponent are set. The loop is vectorised where its length is
// known.
template <typename Bits>
bool block_is_finite(const Bits* bits, std::int64_t elements, Bits exponent) {
  Bits bad = 0;
  const auto note = [&](Bits one) { bad = static_cast<Bits>(bad | static_cast<Bits>((one & exponent) == exponent)); };
  if (elements == kBlock) {
    for (std::int64_t i = 0; i < kBlock; ++i) note(bits[i]);
  } else {
    for (std::int64_t i = 0; i < elements; ++i) note(bits[i]);
  }
  return bad == 0;
}

template <typename Bits>
bool exponents_are_finite(const void* data, std::int64_t elements, Bits exponent) {
  const auto* bits = static_cast<const Bits*>(data);
  std::atomic<bool> finite = true;
  at::parallel_for(0, elements, kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto block = begin; block < end && finite.load(std::memory_order_relaxed); block += kBlock) {
      if (!block_is_finite(bits + block, std::min(end - block, kBlock), exponent)) {
        finite.store(false, std::memory_order_relaxed);
      }
    }
  });
  return finite;
}

bool has_numbers(const at::Tensor& tensor) {
  return tensor.defined() && at::isFloatingType(tensor.scalar_type()) && tensor.numel() > 0;
}

}  // namespace

bool all_finite(const at::Tensor& tensor) {
  if (!has_numbers(tensor)) return true;
  const auto dense = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  const auto* data = dense.const_data_ptr();
  switch (dense.scalar_type()) {
    case at::kDouble:
      return exponents_are_finite<std::uint64_t>(data, dense.numel(), 0x7ff0000000000000U);
    case at::kFloat:
      return exponents_are_finite<std::uint32_t>(data, dense.numel(), 0x7f800000U);
    case at::kHalf:
      return exponents_are_finite<std::uint16_t>(data, dense.numel(), 0x7c00U);
    case at::kBFloat16:
      return exponents_are_finite<std::uint16_t>(data, dense.numel(), 0x7f80U);
    default:
      return dense.to(at::kFloat).isfinite().all().item<bool>();
  }
}

FiniteWatch::FiniteWatch(std::int64_t slots, at::Device device) : device_(device) {
  for (auto* seen : {&now_, &before_}) {
    seen->flags.resize(static_cast<std::size_t>(slots));
    if (device.is_cpu()) continue;
    seen->sums = at::zeros({slots}, at::TensorOptions().dtype(at::kFloat).device(device));
    seen->wide_sums = at::zeros({slots}, at::TensorOptions().dtype(at::kDouble).device(device));
  }
}

void FiniteWatch::begin() {
  std::swap(now_.flags, before_.flags);
  now_.flags.assign(now_.flags.size(), false);
}

void FiniteWatch::begin_on_device() {
  if (!now_.sums.defined()) return;
  for (const auto& [now, before] : {std::pair(now_.sums, before_.sums), std::pair(now_.wide_sums, before_.wide_sums)}) {
    before.copy_(now);
    now.zero_();
  }
}

void FiniteWatch::look(std::int64_t slot, const at::Tensor& tensor) {
  if (!has_numbers(tensor)) return;
  if (tensor.is_cpu()) {
    if (!all_finite(tensor)) now_.flags[static_cast<std::size_t>(slot)] = true;
    return;
  }
  at::NoGradGuard no_gradients;
  if (nn::device::serves(tensor)) {
    nn::device::find_not_finite(now_.sums.select(0, slot), tensor);
    return;
  }
  auto out = (tensor.scalar_type() == at::kDouble ? now_.wide_sums : now_.sums).select(0, slot);
  at::sum_out(out, tensor, at::IntArrayRef(), /*keepdim=*/false, out.scalar_type());
}

at::Tensor FiniteWatch::verdict(Range slots) const {
  const auto first = now_.flags.begin() + slots.begin;
  const bool bad = std::find(first, first + slots.size(), true) != first + slots.size();
  const double here = bad ? std::numeric_limits<double>::quiet_NaN() : 0.0;
  const auto options = at::TensorOptions().dtype(at::kDouble);
  if (!now_.sums.defined()) return at::full({1}, here, options);
  // 0 times what is not finite is NaN.
  const auto zeros = [&](const at::Tensor& sums) {
    return sums.narrow(0, slots.begin, slots.size()).mul(0).sum(at::kDouble).reshape({1});
  };
  return zeros(now_.sums) + zeros(now_.wide_sums) + here;
}

std::vector<bool> FiniteWatch::bad(int steps_ago) const {
  const auto& seen = steps_ago == 0 ? now_ : before_;
  auto found = seen.flags;
  if (!seen.sums.defined()) return found;
  const auto on_host = seen.sums.isfinite().logical_and(seen.wide_sums.isfinite()).cpu();
  const auto* finite = on_host.const_data_ptr<bool>();
  for (std::size_t i = 0; i < found.size(); ++i) found[i] = found[i] || !finite[i];
  return found;
}

}  // namespace orthant
