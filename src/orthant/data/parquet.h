// Texts of Parquet files. Read only by a build with ORTHANT_PARQUET, through the libraries inside the pyarrow package;
// any other build (no_parquet.cpp) refuses such a file and says how it becomes one that is read.
#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "orthant/data/document_reader.h"
#include "orthant/text/parquet_file.h"

namespace orthant {

// DataError in a build that does not read Parquet, whether the file is there or not.
void check_parquet(const std::string& file);

// A document a row: the texts of one column, from row `position` on. A text that is null is an empty document. Held is
// a batch of rows of that column, and what the library keeps of one row group. ConfigError for a column that is not
// there or holds no text; DataError for a file that is damaged.
std::unique_ptr<DocumentReader> open_parquet(const std::filesystem::path& path, const std::string& column,
                                             std::int64_t position);

}  // namespace orthant
