// A look at data that a user names, before there is a configuration: what kind it is and how long its texts are. Looks
// at a sample; only ids are looked at whole. What the columns of a table are is guessed in table_look.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "orthant/text/tokenizer.h"

namespace orthant {

// By endings and first bytes; nothing is tokenized.
enum class DataForm {
  text,      // files, a document each
  rows,      // a table, JSON lines among them: rows of a classifier, or documents in one column
  prepared,  // a folder that prepare-text made
  id_file,   // a .bin
  id_lines,  // JSON lines of ids
};

struct DataFound {
  DataForm form = DataForm::text;
  std::vector<std::string> files;  // or the one folder
  std::int64_t bytes = 0;
  std::string separator = "file";                // of text: what ends a document, as in DocumentOptions
  std::string ids_column = {};                   // of id_lines
  std::vector<std::string> columns = {};         // of rows
  std::optional<std::string> text_column = {};   // of rows: the one with documents, by its name
  std::optional<std::string> label_column = {};  // of rows: by its name, else by its values
  std::vector<std::string> text_columns = {};    // of rows: those that may be texts of a classifier
};

// DataError for what is not there, is no data, or holds nothing.
DataFound find_data(const std::string& path);

// Documents of text files, those without text left out; counted in a sample where the files are large.
struct DocumentCount {
  std::int64_t documents = 0;
  bool estimated = false;
};
DocumentCount count_documents(const DataFound& data, const std::string& separator);

// Documents of a corpus: what a sequence length and a number of steps are chosen from.
struct CorpusLook {
  std::int64_t tokens = 0;           // estimated from a sample where text is not tokenized yet
  std::int64_t document_tokens = 0;  // 99 of 100 documents of the sample have at most so many
  bool whole = false;                // documents are not known, or longer than the sample
  std::int64_t vocab_size = 0;       // of its tokenizer; 0: not known
  bool mask = false;                 // its tokenizer has a mask token
  bool windows_lines = false;        // documents of text have line ends of Windows inside
  std::int64_t largest_id = -1;      // where there are ids already
  std::string token_type = {};       // of an id_file
  std::string text_column = {};      // of rows
  std::uint64_t fingerprint = 0;     // of the tokenizer that made a prepared folder; 0: not known
};
// Text needs a tokenizer, and rows a text_column.
CorpusLook look_at_corpus(const DataFound& data, const std::optional<Tokenizer>& tokenizer);

}  // namespace orthant
