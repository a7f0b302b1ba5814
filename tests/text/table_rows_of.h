// Whole tables read from memory, for tests.
#pragma once

#include <string>
#include <vector>

#include "orthant/text/table_reader.h"

namespace orthant::test {

inline TableReader reader_of(std::string text, TableFormat format, std::vector<std::string> columns,
                             BadRows bad_rows = BadRows::kStop, std::size_t chunk_bytes = 1 << 20) {
  const bool json = format == TableFormat::kJsonLines || format == TableFormat::kJson;
  return TableReader::of_text(std::move(text), json ? "t.json" : "t.csv", format,
                              {.columns = std::move(columns), .bad_rows = bad_rows}, chunk_bytes);
}

// Each row as its line and its fields, which have brackets around them; a missing one is a dash.
inline std::vector<std::string> rows_of(TableReader& reader) {
  std::vector<std::string> rows;
  while (reader.next()) {
    rows.push_back(std::to_string(reader.line()) + ":");
    for (const TableField& field : reader.fields()) {
      rows.back() += field.missing ? "-" : "[" + std::string(field.text) + "]";
    }
  }
  return rows;
}

inline std::vector<std::string> rows_of(TableReader&& reader) {
  return rows_of(reader);
}

}  // namespace orthant::test
