// What a TableReader asks of a file format: the next row as fields, or what is wrong with it. Policies and error texts
// are the reader's; a format only tells reasons and offsets.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/text/chunked_input.h"
#include "orthant/text/table_reader.h"

namespace orthant {

// One row. Views and offsets refer to `text`, the bytes of the row in the input's window, or to storage of the format.
struct TableRow {
  std::string_view text;
  TextPlace start;
  std::vector<TableField> fields;    // one per column asked for
  std::vector<std::size_t> offsets;  // of each field in `text`; of a missing JSON key: 0
  // When the row is bad:
  std::size_t bad_offset = 0;
  std::string reason;
  std::string remedy;
};

class TableRows {
 public:
  enum class Outcome { kRow, kBad, kEnd };

  virtual ~TableRows() = default;

  // Fills `row`, valid until the next call. Throws where the rest of the file cannot be told apart any more.
  virtual Outcome next(TableRow& row) = 0;

  // See TableReader::columns().
  virtual const std::vector<std::string>& names() const = 0;
};

inline constexpr std::size_t kMaxRowBytes = std::size_t{1} << 26;

std::unique_ptr<TableRows> make_csv_rows(ChunkedInput input, char separator, const std::vector<std::string>& columns);
std::unique_ptr<TableRows> make_json_rows(ChunkedInput input, bool may_be_array,
                                          const std::vector<std::string>& columns);

// "movies.csv:12:34"
std::string place_text(std::string_view name, TextPlace place);

}  // namespace orthant
