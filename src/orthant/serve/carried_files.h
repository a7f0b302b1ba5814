// Files that the program carries with it (CMakeLists.txt names their folders): chat templates by name and the page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace orthant {

// "page/page.html". InternalError when there is no such file.
std::string_view carried_file(std::string_view file);

// Of templates/: what --chat-template may name besides files.
std::vector<std::string> chat_template_names();

}  // namespace orthant
