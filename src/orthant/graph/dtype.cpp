#include "orthant/graph/dtype.h"

#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "orthant/base/error.h"
#include "orthant/base/nearest.h"

namespace orthant {
namespace {

struct Row {
  DType dtype;
  std::string_view name;
  std::int64_t bytes;
};

constexpr std::array<Row, 8> kRows = {{{DType::float64, "float64", 8},
                                       {DType::float32, "float32", 4},
                                       {DType::bfloat16, "bfloat16", 2},
                                       {DType::float16, "float16", 2},
                                       {DType::int64, "int64", 8},
                                       {DType::int32, "int32", 4},
                                       {DType::uint8, "uint8", 1},
                                       {DType::boolean, "bool", 1}}};

const Row& row_of(DType dtype) {
  return kRows[static_cast<std::size_t>(dtype)];
}

}  // namespace

std::int64_t bytes_of(DType dtype) {
  return row_of(dtype).bytes;
}

std::string_view dtype_name(DType dtype) {
  return row_of(dtype).name;
}

DType parse_dtype(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& row : kRows) {
    if (row.name == text) return row.dtype;
    names.emplace_back(row.name);
  }
  throw ConfigError(fmt::format("unknown dtype \"{}\"", text), {.remedy = did_you_mean(text, names)});
}

}  // namespace orthant
