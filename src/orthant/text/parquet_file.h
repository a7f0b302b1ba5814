// Parquet files by their name, and what a user does with one that is not read.
#pragma once

#include <filesystem>
#include <string>

namespace orthant {

// By its ending.
bool is_parquet(const std::filesystem::path& path);

// "write it as JSON lines: python3 -c ... > FILE.jsonl": with one column, or all of them for "".
std::string parquet_as_lines(const std::string& file, const std::string& column);

}  // namespace orthant
