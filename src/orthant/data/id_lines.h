// Token ids from JSON lines: [1, 2, 3], or {"ids": [1, 2, 3]} with other keys that are not looked at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orthant {

// Adds the ids of every line to `ids`, and where they end to `ends`; gives the number of lines without ids, which are
// left out. Blank lines count as nothing. DataError names file, line and what is wrong: text that is not JSON, a line
// without the key `column` or with something else than ids between 0 and `largest` under it, a line longer than 64 MiB.
std::int64_t read_id_lines(const std::string& path, const std::string& column, std::int64_t largest,
                           std::vector<std::uint32_t>& ids, std::vector<std::uint64_t>& ends);

}  // namespace orthant
