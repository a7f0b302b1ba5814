#include "orthant/text/parquet_file.h"

#include <fmt/format.h>

namespace orthant {

bool is_parquet(const std::filesystem::path& path) {
  return path.extension() == ".parquet";
}

std::string parquet_as_lines(const std::string& file, const std::string& column) {
  return fmt::format(
      "write it as JSON lines: python3 -c \"import json, pyarrow.parquet as p; [print(json.dumps(row, default=str)) "
      "for "
      "part in p.ParquetFile('{}').iter_batches({}) for row in part.to_pylist()]\" > {}",
      file, column.empty() ? "" : fmt::format("columns=['{}']", column),
      std::filesystem::path(file).replace_extension(".jsonl").string());
}

}  // namespace orthant
