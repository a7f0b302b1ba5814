// The option --dtype of several commands: its names, its help and its errors.
#pragma once

#include <span>
#include <string>

#include "orthant/graph/dtype.h"

namespace orthant::cli {

// "float32, float64, bfloat16"
std::string dtype_list(std::span<const DType> allowed);

// ConfigError that names the nearest one for a name that is none of them.
DType parse_dtype_option(const std::string& name, std::span<const DType> allowed);

}  // namespace orthant::cli
