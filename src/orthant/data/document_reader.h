// Documents of a text file, read as a stream in pieces, so that neither a file nor a document need fit in memory.
// Reading may begin at the end of any piece, and then gives the same pieces.
//
// Note [Pieces]: a document longer than kPieceBytes is cut after a line end that stands alone between two ASCII
// letters, digits or stops: no tokenizer here joins text across such a place, so that the ids are those of the whole
// document. Text without one is cut between characters when it reaches kMaxPieceBytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "orthant/data/token_index.h"

namespace orthant {

// What a document is in a plain text file. Of a table (.csv, .tsv, .jsonl, .ndjson, .json: see text/table_reader.h) a
// document is the text of one column in one row.
struct DocumentOptions {
  std::string separator = "file";    // "file", "blank-line" or "line"
  std::string text_column = "text";  // key or column
};

// ConfigError for an unknown separator.
void check_separator(const std::string& separator);

struct TextPiece {
  std::string text;
  bool ends_document = true;
  std::int64_t next = 0;   // where the piece after this one begins: a byte of a text file, a row of a table
  std::int64_t bytes = 0;  // of the file up to there, about
};

class DocumentReader {
 public:
  static constexpr std::int64_t kPieceBytes = std::int64_t{4} << 20;
  static constexpr std::int64_t kMaxPieceBytes = std::int64_t{64} << 20;

  virtual ~DocumentReader() = default;

  // The next piece, reusing the memory of `piece`; false at the end. A document may be empty. DataError names file,
  // line and column of a row that cannot be read.
  virtual bool next(TextPiece& piece) = 0;
};

// From `position` on, which is 0 or a piece's `next`. DataError for a file that cannot be read.
std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path, const DocumentOptions& options,
                                               std::int64_t position = 0);

}  // namespace orthant
