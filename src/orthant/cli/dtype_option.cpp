#include "orthant/cli/dtype_option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant::cli {
namespace {

std::vector<std::string> names_of(std::span<const DType> allowed) {
  std::vector<std::string> names;
  for (const auto dtype : allowed) names.emplace_back(dtype_name(dtype));
  return names;
}

}  // namespace

std::string dtype_list(std::span<const DType> allowed) {
  return fmt::format("{}", fmt::join(names_of(allowed), ", "));
}

DType parse_dtype_option(const std::string& name, std::span<const DType> allowed) {
  for (const auto dtype : allowed) {
    if (dtype_name(dtype) == name) return dtype;
  }
  throw ConfigError(fmt::format("--dtype {}: not one of {}", name, dtype_list(allowed)),
                    {.remedy = did_you_mean(name, names_of(allowed))});
}

}  // namespace orthant::cli
