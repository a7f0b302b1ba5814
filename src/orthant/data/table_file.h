// Reading of one table file into the rows of a ClassifierTable: every cell checked, texts tokenized, labels numbered;
// numbers still as they are. Internal to the files of such tables.
#pragma once

#include <memory>
#include <vector>

#include "orthant/data/classifier_rows.h"
#include "orthant/data/table_labels.h"

namespace orthant {

struct TableFile {
  std::shared_ptr<ClassifierTable::Rows> rows;  // without numbers; labels as `labels` numbers them
  std::vector<double> numbers;                  // row-major; NaN where missing
  SkippedRows skipped;
  bool has_labels = true;           // the file has the column
  std::int64_t unknown_labels = 0;  // that are no class, where labels are optional
};

// Adds the labels of the file to `labels` unless those are given. DataError as read_classifier_tables() says.
TableFile read_table_file(const std::string& path, const ClassifierTableOptions& options, LabelMap& labels);

}  // namespace orthant
