// Reading keys of a section that count something or choose between two words, with errors that name what is allowed.
#pragma once

#include <cstdint>
#include <string_view>

#include "orthant/base/json_reader.h"

namespace orthant {

// The value at `key`, at least `least` and at most 2^40; `standard` when it is absent.
std::int64_t read_count(JsonReader& section, std::string_view key, std::int64_t standard, std::int64_t least);

// Whether the word at `key` is `when_true`; it must be that or `when_false`. `standard` when it is absent.
bool read_switch(JsonReader& section, std::string_view key, const char* when_false, const char* when_true,
                 bool standard);

}  // namespace orthant
