#include "orthant/plan/estimate/device_heads.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace orthant {
namespace {

// As in ops/attention/attention_library_device.cpp.
constexpr std::int64_t kMostChannels = 128;
constexpr std::int64_t kChannelStep = 8;

// As in ops/attention/attention_device.cpp.
constexpr std::array<std::int64_t, 3> kKernelChannels = {32, 64, 128};
constexpr double kWordKeys = 32;

// Inputs of the operation: the mask of keys, and where packed documents begin; of its gradient the latter.
enum : std::size_t { kMask = 1, kDocuments = 2, kBackDocuments = 6 };

}  // namespace

HeadsBy heads_by(const Operation& attention, std::size_t mask, const UnitSizes& sizes) {
  if (sizes.compute != DType::bfloat16 && sizes.compute != DType::float16) return HeadsBy::formulas;
  const std::size_t documents = mask == kMask ? kDocuments : kBackDocuments;
  if (attention.in.size() > documents && attention.in[documents] >= 0) return HeadsBy::formulas;
  const std::int64_t window = attention.attributes.integer("window");
  if (window > 0 && window < sizes.sequence) return HeadsBy::formulas;
  const std::int64_t size = attention.attributes.integer("head_size");
  const bool sized = std::ranges::find(kKernelChannels, size) != kKernelChannels.end();
  const bool drops = attention.attributes.number("p") > 0;
  // Blocks: ops/attention/attention_blocks_device.cpp.
  if (shares_rows(attention)) return sized && !drops && window == 0 ? HeadsBy::kernels : HeadsBy::formulas;
  if (drops || attention.in[mask] >= 0) return sized ? HeadsBy::kernels : HeadsBy::formulas;
  return size <= kMostChannels && size % kChannelStep == 0 ? HeadsBy::library : HeadsBy::formulas;
}

double kept_bits(double rows, double heads, double sequence) {
  return rows * heads * sequence * std::ceil(sequence / kWordKeys) * bytes_of(DType::float32);
}

}  // namespace orthant
