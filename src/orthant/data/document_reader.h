// Documents of a text file, read as a stream in chunks, so that neither a file nor a document need fit in memory.
// Reading may begin at the end of any chunk, and then gives the same chunks.
//
// A document longer than ChunkOptions::bytes is cut at a safe place, see Note [Safe cuts] in text/safe_cut.h: the ids
// are those of the whole document. Text without such a place is cut after a character that is not white space when it
// reaches `most_bytes`; there the ids may differ. Documents of tokenizers without safe cuts are never cut.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "orthant/data/token_index.h"

namespace orthant {

struct ChunkOptions {
  std::int64_t bytes = std::int64_t{4} << 20;          // more of a document is cut where it is safe
  std::int64_t most_bytes = std::int64_t{64} << 20;    // and so much anywhere; only runs of white space are longer
  bool may_cut = true;                                 // what Tokenizer::may_be_cut() says
  std::int64_t whole_bytes = std::int64_t{256} << 20;  // a document this long that may not be cut is refused
};

// What a document is in a plain text file. Of a table (see is_table() in text/table_reader.h) and of a Parquet file
// (parquet.h) a document is the text of one column in one row.
struct DocumentOptions {
  std::string separator = "file";    // "file", "blank-line" or "line"
  std::string text_column = "text";  // key or column
  bool keep_invalid_utf8 = false;    // as it is; else a DataError names the byte and the line that converts the file
  ChunkOptions chunks = {};
};

// ConfigError for an unknown separator.
void check_separator(const std::string& separator);

struct TextChunk {
  std::string text;
  bool continues_document = false;  // that of the chunk before
  bool ends_document = true;
  std::int64_t next = 0;   // where the chunk after this one begins: a byte of a text file, a row of a table
  std::int64_t bytes = 0;  // of the file up to there, about
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;

  // The next chunk, reusing the memory of `chunk`; false at the end. A document may be empty. DataError names file,
  // line and column of a row that cannot be read, and the place of a document that is too long.
  virtual bool next(TextChunk& chunk) = 0;
};

// From `position` on, which is 0 or a chunk's `next`; `inside_document` tells that this chunk did not end its document.
// DataError for a file that cannot be read.
std::unique_ptr<DocumentReader> open_documents(const std::filesystem::path& path, const DocumentOptions& options,
                                               std::int64_t position = 0, bool inside_document = false);

}  // namespace orthant
