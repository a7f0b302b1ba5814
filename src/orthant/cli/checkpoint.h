// What the files of `orthant checkpoint` share.
#pragma once

#include <string>
#include <vector>

#include "orthant/cli/command.h"

namespace orthant::cli {

inline constexpr const char* kKeyHelp = "file of the key (checkpoint.key_file) that the checkpoint must be tagged with";

// One line each, on stderr.
void print_notes(const std::vector<std::string>& notes);

int run_checkpoint_export(const Arguments& arguments, Context& context);

}  // namespace orthant::cli
