// Numbers in the cells of a table: reading one, and the mean and scale that standardise a column.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "orthant/data/preprocessing.h"

namespace orthant {

// Whether a cell stands for "no number": blank, or one of NA, N/A, NaN, null, None in any case.
bool is_missing_number(std::string_view text);

// What parse_number() reads, up to 1e100 in size so that squares can be added; or true and false in any case, as 1 and
// 0.
std::optional<double> parse_table_number(std::string_view text);

// Mean and scale of the column `column` of row-major `numbers` over the rows `part`; NaN is a missing number and does
// not count. The scale is the root of the mean squared deviation; 1 where all numbers are equal. Nothing without any
// number.
std::optional<NumberPreprocessing> fit_column(std::span<const double> numbers, std::int64_t columns,
                                              std::int64_t column, std::span<const std::int64_t> part);

}  // namespace orthant
