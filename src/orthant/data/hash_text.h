// 64-bit hashes in JSON files: 16 hexadecimal digits in quotes, since JSON numbers lose the low bits.
#pragma once

#include <cstdint>
#include <string>

#include "orthant/base/json_reader.h"

namespace orthant {

// The document's kind of error for a text that is not 16 hexadecimal digits.
std::uint64_t read_hash(JsonReader& reader, const char* key);

}  // namespace orthant
