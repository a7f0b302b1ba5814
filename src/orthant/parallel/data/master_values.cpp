#include "orthant/parallel/data/master_values.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/nn/device_kernels.h"

namespace orthant {
namespace cuda::sources {
extern const std::string_view master_values;
}

namespace {

constexpr std::int64_t kHostPiece = std::int64_t{1} << 18;    // stays in a core's cache
constexpr std::int64_t kDevicePiece = std::int64_t{1} << 25;  // few launches
constexpr std::int64_t kGrain = std::int64_t{1} << 15;        // elements worth a thread

constexpr std::uint32_t kNan = 0x7fc00000;

std::uint32_t one_nan(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x7fffffffU) > 0x7f800000U ? kNan : bits;
}

std::uint16_t upper_half(std::uint32_t bits) {
  return static_cast<std::uint16_t>((bits + 0x8000U) >> 16);
}

// Bit patterns of float32 values as int32, with one NaN. On any device.
at::Tensor plain_bits(const at::Tensor& values) {
  return values.view(at::kInt).masked_fill(values.isnan(), static_cast<std::int32_t>(kNan));
}

at::Tensor rounded(const at::Tensor& bits) {
  return bits.add(0x8000).bitwise_right_shift_(16).to(at::kShort).view(at::kBFloat16);
}

const cuda::Source kRoundingSource{"parallel/data/master_values.cu", cuda::sources::master_values, {"ELEMENT"}};

void round_on_device(const at::Tensor& target, const at::Tensor& source) {
  namespace device = nn::device;
  constexpr std::int64_t kThreadElements = 4;
  const auto shape = device::threads_for((source.numel() + kThreadElements - 1) / kThreadElements, source);
  cuda::kernel(kRoundingSource, "round_to_bfloat16", {device::element(source)})(
      shape, device::data<float>(source), device::data(target), source.numel(),
      device::aligned(0, {source, target}) ? 1 : 0);
}

void round_on_host(const at::Tensor& target, const at::Tensor& source) {
  const auto* from = source.const_data_ptr<float>();
  auto* to = reinterpret_cast<std::uint16_t*>(target.mutable_data_ptr<at::BFloat16>());
  at::parallel_for(0, source.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) to[i] = upper_half(one_nan(from[i]));
  });
}

void split_on_host(const at::Tensor& values, const at::Tensor& upper, const at::Tensor& remainder) {
  const auto* from = values.const_data_ptr<float>();
  auto* high = reinterpret_cast<std::uint16_t*>(upper.mutable_data_ptr<at::BFloat16>());
  auto* low = remainder.mutable_data_ptr<std::int16_t>();
  at::parallel_for(0, values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      const auto bits = one_nan(from[i]);
      high[i] = upper_half(bits);
      low[i] = static_cast<std::int16_t>(bits);
    }
  });
}

void join_on_host(const at::Tensor& upper, const at::Tensor& remainder, const at::Tensor& values) {
  const auto* high = reinterpret_cast<const std::uint16_t*>(upper.const_data_ptr<at::BFloat16>());
  const auto* low = remainder.const_data_ptr<std::int16_t>();
  auto* to = values.mutable_data_ptr<float>();
  at::parallel_for(0, values.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      to[i] = std::bit_cast<float>((std::uint32_t{high[i]} << 16) + static_cast<std::uint32_t>(std::int32_t{low[i]}));
    }
  });
}

}  // namespace

void check_master(const Precision& precision, const DataPolicy& policy) {
  if (precision.master != MasterKind::bf16_remainder) return;
  if (precision.params != DType::float32 || precision.compute != DType::bfloat16) {
    throw ConfigError(
        fmt::format("precision.master: bf16_remainder is float32 params beside bfloat16 compute; params are {} and "
                    "compute is {}",
                    dtype_name(precision.params), dtype_name(precision.compute)),
        {.remedy = fmt::format("set precision.params=float32 and precision.compute=bfloat16, or precision.master={}",
                               dtype_name(precision.params))});
  }
  if (policy.offload != Offload::none) {
    throw ConfigError(
        fmt::format("precision.master: bf16_remainder with parallel.offload={}: its halves would lie on two devices",
                    offload_name(policy.offload)),
        {.remedy = "set parallel.offload=none or precision.master=float32"});
  }
}

MasterValues::MasterValues(at::Tensor upper, at::Tensor remainder)
    : upper_(std::move(upper)), remainder_(std::move(remainder)) {
  const bool halves = upper_.scalar_type() == at::kBFloat16 && remainder_.scalar_type() == at::kShort;
  if (halves && upper_.numel() == remainder_.numel() && upper_.device() == remainder_.device()) return;
  throw InternalError(fmt::format("{} elements of {} and {} of {} are no halves of float32 values", upper_.numel(),
                                  c10::toString(upper_.scalar_type()), remainder_.numel(),
                                  c10::toString(remainder_.scalar_type())));
}

const at::Tensor& MasterValues::whole() const {
  if (is_split()) throw InternalError("the optimizer's copy is stored in halves: it has no tensor of its own");
  return whole_;
}

const at::Tensor& MasterValues::upper() const {
  if (!is_split()) throw InternalError("the optimizer's copy is not stored in halves");
  return upper_;
}

const at::Tensor& MasterValues::remainder() const {
  if (!is_split()) throw InternalError("the optimizer's copy is not stored in halves");
  return remainder_;
}

MasterValues MasterValues::narrow(std::int64_t first, std::int64_t count) const {
  if (!is_split()) return MasterValues(whole_.narrow(0, first, count));
  return {upper_.narrow(0, first, count), remainder_.narrow(0, first, count)};
}

at::Tensor MasterValues::values() const {
  if (!is_split()) return whole_;
  at::NoGradGuard no_gradients;
  if (is_cpu()) {
    const auto values = at::empty({size()}, at::kFloat);
    join_on_host(upper_, remainder_, values);
    return values;
  }
  return upper_.view(at::kShort).to(at::kInt).bitwise_left_shift_(16).add_(remainder_).view(at::kFloat);
}

void MasterValues::set_values(const at::Tensor& values) const {
  at::NoGradGuard no_gradients;
  if (!is_split()) {
    if (!whole_.is_same(values)) whole_.copy_(values);
    return;
  }
  in_pieces([&](std::int64_t first, const MasterValues& part) {
    const auto wide = values.narrow(0, first, part.size()).to(part.device(), at::kFloat).contiguous();
    if (part.is_cpu()) {
      split_on_host(wide, part.upper_, part.remainder_);
      return;
    }
    const auto bits = plain_bits(wide);
    part.upper_.copy_(rounded(bits));
    part.remainder_.copy_(bits.view(at::kShort).view({-1, 2}).select(1, 0));  // devices are little-endian
  });
}

void MasterValues::change(const std::function<void(const at::Tensor& values)>& act) const {
  const auto changed = values();
  act(changed);
  if (is_split()) set_values(changed);
}

void MasterValues::in_pieces(const std::function<void(std::int64_t first, const MasterValues& part)>& act) const {
  if (!is_split()) {
    act(0, *this);
    return;
  }
  const auto piece = is_cpu() ? kHostPiece : kDevicePiece;
  for (std::int64_t first = 0; first < size(); first += piece) {
    act(first, narrow(first, std::min(piece, size() - first)));
  }
}

void round_into(const at::Tensor& target, const at::Tensor& source) {
  at::NoGradGuard no_gradients;
  if (target.scalar_type() != at::kBFloat16 || source.scalar_type() != at::kFloat) {
    target.copy_(source, /*non_blocking=*/true);
  } else if (source.numel() > 0 && nn::device::serves(source) && nn::device::serves(target)) {
    round_on_device(target, source);
  } else if (!source.is_cpu()) {
    target.copy_(rounded(plain_bits(source)), /*non_blocking=*/true);
  } else if (target.is_cpu()) {
    round_on_host(target, source);
  } else {
    const auto on_host = at::empty(source.sizes(), target.options().device(at::kCPU).pinned_memory(source.is_pinned()));
    round_on_host(on_host, source);
    target.copy_(on_host, /*non_blocking=*/true);
  }
}

}  // namespace orthant
