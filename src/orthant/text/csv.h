// Writing of comma-separated values after RFC 4180: a field that holds a comma, a quote or a line end is put in quotes,
// and its quotes are doubled.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace orthant {

std::string csv_field(std::string_view text);

// The fields with commas between them and a line end, "\n".
std::string csv_line(std::span<const std::string> fields);

}  // namespace orthant
