// What the columns of a table are, guessed before there is a configuration: texts, numbers and the label. Most of it
// is guessed by the first rows; labels and numbers are read to their end, since every row must fit the guess.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "orthant/data/data_look.h"
#include "orthant/data/inspect_table.h"
#include "orthant/data/label_typos.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

// Fills in the columns of `data`, which is a table. DataError when it has no rows.
void find_columns(DataFound& data);

struct TableLook {
  std::int64_t rows = 0;
  std::int64_t bad_rows = 0;  // that cannot be read, or have no label
  std::string label;
  std::vector<ColumnValue> labels;                        // frequent ones first
  std::vector<LabelTypo> typos;                           // labels that may be misspelt
  std::string primary_text, secondary_text;               // the second may be empty
  std::int64_t primary_tokens = 0, secondary_tokens = 0;  // 99 of 100 texts of the sample have at most so many
  std::vector<std::string> numbers;
  std::vector<ColumnFacts> worded_numbers;  // those of them in which some cells are not numbers
  std::vector<ColumnFacts> numbered_words;  // columns with numbers in most cells and too many words to be numbers
  std::vector<ColumnFacts> wordless;        // neither numbers nor texts, and unused
  std::vector<std::string> unused;
};
// `label` and `text` (the first of two) are the columns when given. DataError when no column can be the label, or none
// holds text, or `text` does not.
TableLook look_at_table(const DataFound& data, const Tokenizer& tokenizer, const std::string& label,
                        const std::string& text = {});

}  // namespace orthant
