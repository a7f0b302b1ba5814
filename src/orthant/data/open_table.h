// Opens a table and says what is wrong with one whose columns are not separated by commas.
#pragma once

#include <string>

#include "orthant/text/table_reader.h"

namespace orthant {

// ConfigError that names the separator where a .csv file has one column that looks like several.
void refuse_other_separator(const std::string& path);

// As TableReader::open(). What refuse_other_separator() says, where a column that was asked for is missing.
TableReader open_table(const std::string& path, TableOptions options);

}  // namespace orthant
