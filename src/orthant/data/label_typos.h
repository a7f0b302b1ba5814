// Labels of a table that are probably misspelt: without a list of labels every spelling becomes a class of its own.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "orthant/data/inspect_table.h"

namespace orthant {

struct LabelTypo {
  ColumnValue label;
  std::string meant;  // a more frequent label
};

// Labels that differ from a more frequent one by case or blanks alone, or as text from an equal number ("1.0", "1");
// and labels of one or two rows that are a few letters from one of at least ten. `labels`: frequent ones first.
std::vector<LabelTypo> label_typos(std::span<const ColumnValue> labels);

// `"hamm" (1 row, line 42) may be "ham"`, with commas between several, the first few; without the line where it is 0.
std::string describe_typos(std::span<const LabelTypo> typos);

}  // namespace orthant
