// Data kind `trimodal`: a table with two text columns, numbers and a label, from CSV, TSV, JSON or JSON lines. A file
// is read once and whole: texts as token ids end to end, numbers standardised, labels as classes; 4 bytes a token
// and 4 a number, whatever the padded length is. Ranks of a host may share what one of them has read (shared_tables.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "orthant/data/dataset.h"
#include "orthant/data/preprocessing.h"
#include "orthant/text/table_reader.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

struct TableText {
  std::string column;                  // empty: every row has an empty text (the second text only)
  std::optional<Tokenizer> tokenizer;  // of the second text: nothing, as the first
  std::string tokenizer_name;          // for errors and preprocessing.json
  std::int64_t length = 128;           // ids at most, special ones included; rows are padded to it
};

struct ClassifierTableOptions {
  std::string path;
  std::string eval_path;  // empty: a part of `path`, see eval_fraction
  TableText primary;
  TableText secondary;
  std::vector<std::string> tabular;  // columns of numbers; may be empty
  std::string label;
  std::vector<std::string> labels;      // in class order; empty: as found, numbers in their order, else by bytes
  std::vector<double> class_weights;    // one per class; empty: all 1
  bool balanced_class_weights = false;  // rows / (classes x rows of the class), of the training part
  double eval_fraction = 0;             // round(fraction x rows) rows, drawn by (seed, row number)
  std::uint64_t seed = 0;
  bool skip_bad_rows = false;
  std::string skip_remedy = "set data.bad_rows=skip";  // what errors name to leave a bad row out
  std::string label_remedy;  // of a file without the label's column; empty: the columns it has
  // Of rows to score: the file need not have the label column, and a label that is missing or no class is no bad row.
  bool labels_optional = false;
  std::optional<Preprocessing> preprocessing;       // of a trained model: applied instead of fitted anew
  std::string preprocessing_source;                 // where it comes from, for errors
  std::function<void(std::int64_t rows)> progress;  // called every few thousand rows of a file, and at its end
};

// Fields: "primary_ids" int64 [rows, primary length], "primary_mask" bool alike, "secondary_ids", "secondary_mask",
// "tabular" float32 [rows, columns] when there are any, "labels" int64 [rows] (kIgnoredLabel where labels are
// optional).
class ClassifierTable : public Dataset {
 public:
  struct Rows;  // of one file; the parts of a file share them

  ClassifierTable(std::shared_ptr<const Rows> rows, std::vector<std::int64_t> part, std::vector<double> class_weights);
  // The part lies in the memory that the rows keep alive.
  ClassifierTable(std::shared_ptr<const Rows> rows, std::span<const std::int64_t> part,
                  std::vector<double> class_weights);

  std::int64_t size() const override { return static_cast<std::int64_t>(part_.size()); }
  Fields rows(std::span<const std::int64_t> indices) const override;
  Totals totals(std::span<const std::int64_t> indices) const override;  // without building rows

  const Rows& content() const { return *rows_; }
  std::span<const std::int64_t> part() const { return part_; }

  // Rows of each class.
  std::vector<std::int64_t> label_counts() const;

  // The number of the row in its file, counted from 0 without the header.
  std::int64_t file_row(std::int64_t index) const;

  // The row's class; kIgnoredLabel for one without.
  std::int64_t label(std::int64_t index) const;

 private:
  // Where the samples lie in rows_. InternalError for an index outside [0, size()).
  std::vector<std::int64_t> places(std::span<const std::int64_t> indices) const;

  std::shared_ptr<const Rows> rows_;
  std::vector<std::int64_t> own_part_;
  std::span<const std::int64_t> part_;
};

struct ClassifierTables {
  std::shared_ptr<const ClassifierTable> train;
  std::shared_ptr<const ClassifierTable> eval;  // null without evaluation data
  Preprocessing preprocessing;
  SkippedRows skipped;  // of both files
};

// ConfigError for options that contradict each other and columns that the file does not have; DataError for a bad row
// (file, line, column, value) unless bad rows are skipped, for more bad rows than good ones, for a column without any
// number, for labels that cannot be classes, and for a preprocessing that does not fit.
ClassifierTables read_classifier_tables(const ClassifierTableOptions& options);

// All rows of options.path as a trained model reads them: by options.preprocessing, which must be given.
struct TableToScore {
  std::shared_ptr<const ClassifierTable> rows;
  Preprocessing preprocessing;
  SkippedRows skipped;
  bool has_labels = true;           // the file has the column
  std::int64_t unknown_labels = 0;  // rows whose label is no class, where labels are optional
};
// Errors as read_classifier_tables().
TableToScore read_table_to_score(const ClassifierTableOptions& options);

}  // namespace orthant
