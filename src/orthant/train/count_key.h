// Reading a key that counts something: within bounds, with an error that names them.
#pragma once

#include <cstdint>
#include <string_view>

#include "orthant/base/json_reader.h"

namespace orthant {

// The value at `key`, at least `least` and at most 2^40; `standard` when it is absent.
std::int64_t read_count(JsonReader& section, std::string_view key, std::int64_t standard, std::int64_t least);

}  // namespace orthant
