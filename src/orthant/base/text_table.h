// Lines of cells as text with aligned columns.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orthant {

using TableLine = std::vector<std::string>;

// Columns two blanks apart: the first `left` of them aligned left, the others right. Lines have no blanks at their end;
// all have as many cells as the first one.
std::string text_table(const std::vector<TableLine>& lines, std::size_t left = 1);

}  // namespace orthant
