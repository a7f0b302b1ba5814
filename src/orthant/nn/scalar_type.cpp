#include "orthant/nn/scalar_type.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 8> kTypes = {{{DType::float64, at::kDouble},
                                                                     {DType::float32, at::kFloat},
                                                                     {DType::bfloat16, at::kBFloat16},
                                                                     {DType::float16, at::kHalf},
                                                                     {DType::int64, at::kLong},
                                                                     {DType::int32, at::kInt},
                                                                     {DType::uint8, at::kByte},
                                                                     {DType::boolean, at::kBool}}};

}  // namespace

at::ScalarType scalar_type(DType dtype) {
  return kTypes[static_cast<std::size_t>(dtype)].second;
}

DType dtype_of(at::ScalarType type) {
  for (const auto& [ours, torchs] : kTypes) {
    if (torchs == type) return ours;
  }
  throw InternalError(fmt::format("dtype {} has no counterpart", c10::toString(type)));
}

}  // namespace orthant
