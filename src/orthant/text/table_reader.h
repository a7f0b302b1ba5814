// The rows of a table, one after the other, from a CSV, TSV, JSON lines or JSON file: only the columns asked for, each
// as text. The file is read as a stream, so its size does not matter. What is wrong with a row names file, line and
// column, and either stops the reading or is skipped and counted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// Who reads a whole table tells how far it is after so many rows.
inline constexpr std::int64_t kProgressRows = 4096;

enum class BadRows { kStop, kSkip };

// What a text does that is not UTF-8: it makes its row bad, is a DataError whatever bad rows are, or is taken as it is.
enum class InvalidUtf8 { kBadRow, kStop, kKeep };

struct TableOptions {
  std::vector<std::string> columns;                 // in the order that fields() gives them; a name may come twice
  BadRows bad_rows = BadRows::kStop;                // stop: the first bad row is a DataError
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kBadRow;  // of the columns asked for
};

enum class TableFormat { kCsv, kTsv, kJsonLines, kJson };

// An empty text, null, and a key that is not there are missing; text is empty then.
struct TableField {
  std::string_view text;
  bool missing = true;
};

// The rows that were left out. `reasons` holds the first ones, as the errors would have read.
struct SkippedRows {
  static constexpr std::size_t kKept = 5;
  std::int64_t count = 0;
  std::vector<std::string> reasons;
};

// "1 bad row was left out", "3 bad rows were left out".
std::string left_out_text(const SkippedRows& skipped);

// All methods are Local. Not for use by two threads at once.
class TableReader {
 public:
  // The ending decides: .csv, .tsv, .jsonl or .ndjson, and .json (an array of objects, or JSON lines). ConfigError for
  // another ending and for a column that the header does not have; DataError for a header that cannot serve, and for
  // a Parquet file, with what makes JSON lines of it.
  static TableReader open(const std::filesystem::path& path, TableOptions options);

  // The same from memory; `name` is what errors call it. A chunk is what is looked at in one go.
  static TableReader of_text(std::string text, std::string name, TableFormat format, TableOptions options,
                             std::size_t chunk_bytes = std::size_t{1} << 20);

  TableReader(TableReader&&) noexcept;
  TableReader& operator=(TableReader&&) noexcept;
  ~TableReader();

  // Goes to the next good row; false at the end. What would hide the rest of the file (a quote that is never closed, a
  // row beyond 64 MiB, an array that breaks off) is a DataError even where bad rows are skipped. At the end of a JSON
  // file, a column that no row had is a ConfigError.
  bool next();

  // Of the present row, one per column asked for. Valid until next().
  std::span<const TableField> fields() const;
  std::int64_t line() const;  // where the row begins, from 1

  // "movies.csv:12:34" (line and byte column) of a field.
  std::string place(std::size_t field) const;

  // For rules that the caller knows (a label without a class): as bad as a row that cannot be read. Throws the
  // DataError `movies.csv:12:34: column "Major Genre": <message>`, or counts the row as skipped and returns.
  void reject(std::size_t field, std::string_view message, std::string remedy = {});

  // All columns of the file, in order: those of the header, or the keys that the good ones among the first
  // kNamedRows rows had, as far as they were read.
  const std::vector<std::string>& columns() const;
  static constexpr std::int64_t kNamedRows = 1000;

  std::int64_t rows() const;  // good rows so far, less those rejected
  const SkippedRows& skipped() const;
  const std::string& name() const;

 private:
  struct State;
  explicit TableReader(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

// Whether open() reads such a file, by its ending.
bool is_table(const std::filesystem::path& path);

// A finite decimal number as JSON or C write it ("1", "-2.5e3", "+.5"), with blanks around it; nothing for other texts,
// among them "", "nan", "inf", "0x10", "1,000" and numbers beyond a double.
std::optional<double> parse_number(std::string_view text);

}  // namespace orthant
