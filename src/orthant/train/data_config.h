// The `data` section of a configuration: where samples come from. Nothing is opened here; make_run_data() does that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/base/json_reader.h"
#include "orthant/data/data_kind.h"

namespace orthant {

// Kind `text`: a folder that `orthant data prepare-text` made, text files, which are then tokenized at the start, or
// files of ids that another program made.
struct TextSource {
  std::vector<std::string> path;
  std::vector<std::string> eval_path;  // empty: a part of `path`, see eval_fraction
  std::string tokenizer;               // file or folder; a prepared folder brings its own
  std::string separator = "file";      // of documents in text files: file, blank-line, line
  std::string text_column = "text";    // of .jsonl and .csv files
  std::optional<bool> begin_token;     // before every document of text; nothing: where the tokenizer puts one
  bool keep_invalid_utf8 = false;      // bytes that are not UTF-8, instead of stopping at the first
  std::string token_type;              // of a .bin: uint16, uint32
  std::string ids_column;              // of JSON lines that hold ids: their key; empty: they hold text
  bool packing = true;                 // documents one after the other without padding; or one document a sample
  bool pack = false;                   // with packing: tokens see their own document alone, positions count in it
};

// Kind kTableKind: a table, as CSV or JSON lines.
struct TableSource {
  std::string path;
  std::string eval_path;
  std::string primary_text;          // columns
  std::string secondary_text;        // empty: every row has an empty text
  std::vector<std::string> tabular;  // numbers; may be empty
  std::string label;
  std::vector<std::string> labels;      // what the label column holds, in class order; empty: as found, sorted
  std::vector<double> class_weights;    // one per class; empty: all 1
  bool balanced_class_weights = false;  // from the training part instead
  std::string primary_tokenizer;        // files or folders
  std::string secondary_tokenizer;
  bool skip_bad_rows = false;
};

struct DataConfig {
  std::string kind = "tokens";  // tokens, text, random, or one of data/data_kind.h
  std::int64_t sequence_length = 128;
  std::int64_t secondary_length = 0;  // of the second text; 0: as the first
  std::int64_t samples = 4096;        // of generated data
  double eval_fraction = 0;           // of samples: generated besides them, or held out of a file
  bool pad_to_longest = true;         // of the microbatch; or to the sequence length always
  bool unpadded = false;              // training: rows of a microbatch side by side, without padding
  bool log_samples = false;           // which samples each step had, see sample_log.h
  TextSource text;
  TableSource table;

  bool from_files() const { return kind == "text" || kind == kTableKind; }
};

DataConfig read_data(JsonReader section);

}  // namespace orthant
