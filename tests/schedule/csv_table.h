// A stage table as a spreadsheet has it: to_text() with commas.
#pragma once

#include <algorithm>
#include <string>

#include "orthant/schedule/stage_table.h"

namespace orthant::test {

inline std::string csv_table(const StageTable& table) {
  auto text = to_text(table);
  std::ranges::replace(text, ' ', ',');
  return text;
}

}  // namespace orthant::test
