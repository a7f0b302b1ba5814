// Element types as the pure layers know them. The torch layers turn them into at::ScalarType in one place.
#pragma once

#include <cstdint>
#include <string_view>

namespace orthant {

enum class DType { float64, float32, bfloat16, float16, int64, int32, uint8, boolean };

// As configurations spell bfloat16 with products of transformer layers in float8: see program/float8.h.
inline constexpr std::string_view kFloat8Name = "float8";

std::int64_t bytes_of(DType dtype);

// "float32", as configs and manifests spell it.
std::string_view dtype_name(DType dtype);

// The dtype of that name; a ConfigError that names the nearest one otherwise.
DType parse_dtype(std::string_view text);

}  // namespace orthant
