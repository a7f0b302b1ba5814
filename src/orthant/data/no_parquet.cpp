// A build without ORTHANT_PARQUET.
#include <fmt/format.h>

#include "orthant/base/error.h"
#include "orthant/data/parquet.h"

namespace orthant {

void check_parquet(const std::string& file) {
  const auto lines = std::filesystem::path(file).replace_extension(".jsonl").string();
  throw DataError(
      fmt::format("{} is a Parquet file, which this build does not read", file),
      {.remedy = fmt::format("{}; then orthant data prepare-text --input {} --text-column text --tokenizer T "
                             "--out FOLDER; or build with -DORTHANT_PARQUET=ON",
                             parquet_as_lines(file, "text"), lines)});
}

std::unique_ptr<DocumentReader> open_parquet(const std::filesystem::path& path, const std::string& /*column*/,
                                             std::int64_t /*position*/) {
  check_parquet(path.string());
  throw InternalError("a Parquet file was not refused");
}

}  // namespace orthant
