// What a table file holds, column by column, for `orthant data inspect`: to be looked at before a run reads the file.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "orthant/text/table_reader.h"
#include "orthant/text/tokenizer.h"

namespace orthant {

struct InspectTableOptions {
  std::string path;
  std::vector<std::string> columns;    // empty: all
  std::optional<Tokenizer> tokenizer;  // counts the tokens of texts
  std::int64_t most_rows = 0;          // a sample: so many good rows from the start, or fewer
  std::int64_t most_bytes = 0;         // of text in them; 0: no limit, here and above
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kBadRow;
  std::function<void(std::int64_t rows)> progress = {};
};

// Token counts of a column's texts, special tokens included; missing texts count as empty ones.
struct TokenFacts {
  std::int64_t least = 0;
  std::int64_t most = 0;
  std::int64_t total = 0;
  std::int64_t p99 = 0;      // 99 of 100 texts have at most so many
  std::int64_t unknown = 0;  // tokens that are [UNK]
};

// A value of a column: how often it comes, and the line of its first row.
struct ColumnValue {
  std::string text;
  std::int64_t count = 0;
  std::int64_t line = 0;

  friend bool operator==(const ColumnValue&, const ColumnValue&) = default;
};

struct ColumnFacts {
  static constexpr std::size_t kMostDistinct = 10000;
  static constexpr std::size_t kMostValues = 50;
  static constexpr std::size_t kShownBytes = 200;  // of a value; longer ones are cut and end in "..."

  std::string name;
  std::int64_t missing = 0;
  std::int64_t numbers = 0;   // cells that are numbers
  std::int64_t words = 0;     // cells that are neither numbers nor missing
  ColumnValue first_word;     // the first of these
  std::int64_t lettered = 0;  // those of them with a letter: "two", not "$2.50" or "2024-01-31"
  std::int64_t distinct = 0;  // different values by their hashes, kMostDistinct at most
  double min = 0;             // of the numbers, as are the next two
  double mean = 0;
  double max = 0;
  std::vector<std::string> examples;  // the first different values
  std::vector<ColumnValue> values;    // all, frequent ones first; or none when there are more than kMostValues
  std::optional<TokenFacts> tokens;   // of a text column, when a tokenizer is there

  bool is_numeric() const { return numbers > 0 && words == 0; }
  // Dates, amounts and the like: neither numbers nor texts.
  bool is_wordless() const { return words > 0 && lettered * 2 < words; }
  // Numbers, but for a few cells that somebody has to mend: one in ten at most.
  bool is_mostly_numeric() const { return numbers > 0 && numbers >= 9 * words; }
};

// A column of numbers in most cells that are not missing, and of words in some.
bool holds_stray_words(const ColumnFacts& column);
// `3 of 400 cells are not numbers, the first in line 59: "forty"`.
std::string describe_stray_words(const ColumnFacts& column);

struct TableFacts {
  std::int64_t rows = 0;  // good ones
  std::vector<ColumnFacts> columns;
  SkippedRows bad;  // that cannot be read
};

// Errors as of TableReader; bad rows are counted, never an error.
TableFacts inspect_table(const InspectTableOptions& options);

}  // namespace orthant
