// What `orthant init` says of a table: which columns it took for what, and what somebody should look at.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "orthant/data/table_look.h"

namespace orthant {

// Lines as SuggestedConfig::found has them.
std::vector<std::pair<std::string, std::string>> table_findings(const TableLook& look, const std::string& path);

}  // namespace orthant
