// Reading of one table file into the rows of a TrimodalTable: every cell checked, texts tokenized, labels numbered;
// numbers still as they are. Internal to the trimodal table's files.
#pragma once

#include <memory>
#include <vector>

#include "orthant/data/table_labels.h"
#include "orthant/data/trimodal_rows.h"

namespace orthant {

struct TableFile {
  std::shared_ptr<TrimodalTable::Rows> rows;  // without numbers; labels as `labels` numbers them
  std::vector<double> numbers;                // row-major; NaN where missing
  SkippedRows skipped;
  bool has_labels = true;           // the file has the column
  std::int64_t unknown_labels = 0;  // that are no class, where labels are optional
};

// Adds the labels of the file to `labels` unless those are given. DataError as read_trimodal_tables() says.
TableFile read_table_file(const std::string& path, const TrimodalTableOptions& options, LabelMap& labels);

}  // namespace orthant
