// Opens a table and says what is wrong with one whose columns are not separated by commas.
#pragma once

#include <string>

#include "orthant/text/table_reader.h"

namespace orthant {

// As TableReader::open(). ConfigError that names the separator where a .csv file has one column that looks like
// several.
TableReader open_table(const std::string& path, TableOptions options);

}  // namespace orthant
