// Files that the library carries with it (CMakeLists.txt names their folders): hardware, stacks, the report's page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "orthant/base/json_document.h"

namespace orthant {

// "hardware/a100-80gb.json". InternalError when there is no such file.
std::string_view plan_data(std::string_view file);

// Names without folder and ending: plan_data_names("hardware/", ".json"); ascending.
std::vector<std::string> plan_data_names(std::string_view folder, std::string_view ending);

// A description by its name, one of plan_data_names(folder, ".json"), or in a file of the user's.
struct NamedDocument {
  std::string name;
  JsonDocument document;
};
// `what` is described: "hardware". ConfigError with the nearest name.
NamedDocument find_plan_document(std::string_view what, std::string_view folder, const std::string& name_or_path);

// Whether it names a file of the user's: it has a slash, or ends in .json.
bool is_path_of_json(const std::string& name_or_path);

}  // namespace orthant
