// Files of src/orthant/plan/data, which the library carries with it: hardware, stacks, the report's page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// "hardware/a100-80gb.json". InternalError when there is no such file.
std::string_view plan_data(std::string_view file);

// Names without folder and ending: plan_data_names("hardware/", ".json"); ascending.
std::vector<std::string> plan_data_names(std::string_view folder, std::string_view ending);

}  // namespace orthant
