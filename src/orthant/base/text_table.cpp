#include "orthant/base/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace orthant {

std::string text_table(const std::vector<TableLine>& lines, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const TableLine& line : lines) {
    widths.resize(std::max(widths.size(), line.size()));
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string text;
  for (const TableLine& line : lines) {
    std::string row;
    for (std::size_t c = 0; c < line.size(); ++c) {
      if (c > 0) row += "  ";
      row += c < left ? fmt::format("{:<{}}", line[c], widths[c]) : fmt::format("{:>{}}", line[c], widths[c]);
    }
    row.erase(row.find_last_not_of(' ') + 1);
    text += row + "\n";
  }
  return text;
}

}  // namespace orthant
