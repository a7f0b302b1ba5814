// The element types of safetensors files by their names there: "F32", "BF16", "I64", … Files know bytes only; the
// layers that know tensors translate the names.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace orthant {

// Nothing for a name that the format does not have, or whose elements are not whole bytes.
std::optional<std::int64_t> element_bytes(std::string_view name);

// The format's types of 4 and 6 bits.
bool has_partial_byte_elements(std::string_view name);

// Those of whole bytes.
std::span<const std::string> element_type_names();

}  // namespace orthant
