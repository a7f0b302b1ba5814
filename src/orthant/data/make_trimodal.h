// The trimodal demo as files, for `orthant data make-trimodal`: what a user's own data should look like, and a way to
// try the readers. Columns are called as in the flat configurations: dialogue, shiptrack, feature_1 ... feature_8,
// label.
#pragma once

#include <cstdint>
#include <string>

#include "orthant/data/dataset.h"

namespace orthant {

struct MakeTrimodalOptions {
  std::int64_t rows = 4096;
  std::string folder;          // made when missing; files of the same names are replaced
  std::string format = "csv";  // or "jsonl"
  std::uint64_t seed = 0;
  DataSplit split = DataSplit::train;
};

// Paths of what was written. The eval split has names of its own, trimodal_eval.* and facts_eval.json.
struct MadeTrimodal {
  std::string data;        // trimodal.csv or trimodal.jsonl
  std::string vocabulary;  // vocab.txt: one word a line, the line number is the id
  std::string facts;       // facts.json: columns, sizes, the best reachable accuracy
};

// Row i is sample i of TrimodalDemo with the same seed and split. ConfigError for an unknown format, no folder or rows
// below 1; DataError when a file cannot be written.
MadeTrimodal make_trimodal(const MakeTrimodalOptions& options);

}  // namespace orthant
