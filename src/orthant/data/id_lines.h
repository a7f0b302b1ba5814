// Token ids from JSON lines: [1, 2, 3], or {"ids": [1, 2, 3]} with other keys that are not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

// A document a line. Those without ids are counted and left out; blank lines count as nothing.
struct IdLines {
  std::vector<std::uint32_t> ids = {};
  std::vector<std::uint64_t> ends = {};    // in `ids`, of each document
  std::vector<std::int64_t> numbers = {};  // of each document, among all
  std::int64_t documents = 0;
};

// Whether the first line that is not blank is a list in JSON, or an object with the key `column`. DataError for a file
// that cannot be read.
bool begins_with_ids(const std::string& path, const std::string& column);

// Adds the documents of a file. DataError names file, line and what is wrong: text that is not JSON, a line
// without the key `column` or with something else than ids between 0 and `largest` under it, a line longer than 64 MiB.
void read_id_lines(const std::string& path, const std::string& column, std::int64_t largest, IdLines& lines);

}  // namespace orthant
