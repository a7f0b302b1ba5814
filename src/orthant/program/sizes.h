// Sizes of a program's values in one microbatch, on the tp rank with the largest parts. Pure.
#pragma once

#include <cstdint>

#include "orthant/program/program.h"

namespace orthant {

struct UnitSizes {
  std::int64_t rows = 1;
  std::int64_t sequence = 1;        // that a rank has of each row: of the cp rank with the most
  std::int64_t whole_sequence = 1;  // of all cp ranks
  int degree = 1;                   // of tp
  DType compute = DType::float32;   // of activations

  std::int64_t tokens() const { return rows * sequence; }
};

// Of a unit of a graph whose shapes are those of one microbatch.
UnitSizes unit_sizes(const GraphSpec& graph, const UnitSpec& unit, const TensorSharing& sharing);

// What a rank has of a value; ConfigError for more elements than any machine holds.
Shape local_shape(const ValuePlace& at, const UnitSizes& sizes);
std::int64_t local_elements(const ValuePlace& at, const UnitSizes& sizes);
// What it has of a parameter.
Shape local_shape(const ParameterAt& at, const UnitSizes& sizes);

// Sums, norm statistics and losses: float32, or float64 when computing in it.
DType statistics_dtype(DType compute);
// Of numbers that operations make; ids and masks are the batch's own.
inline bool is_made(Number number) {
  return number == Number::compute || number == Number::statistic || number == Number::place ||
         number == Number::float8;
}
std::int64_t element_bytes(Number number, DType compute);  // 0 of opaque ones, whose size nobody knows before
std::int64_t local_bytes(const ProgramValue& value, const UnitSizes& sizes);
// Of activations and statistics among the values; ids and masks, which the batch has anyway, are not counted.
std::int64_t activation_bytes(const Program& program, const std::vector<int>& values, const UnitSizes& sizes);

// Bytes that a call counts: the tensor of a sum, the gathered output, the whole input of a scatter.
std::int64_t payload_bytes(const Program& program, const Operation& start, const UnitSizes& sizes);

}  // namespace orthant
