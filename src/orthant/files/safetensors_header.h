// The header of a safetensors file, as text and as values. Used by the reader and the writer of safetensors.h only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "orthant/files/safetensors.h"

namespace orthant {

// The format's own limit.
inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;   // in order of their place
  std::vector<std::int64_t> offsets;  // where each begins, in bytes after the header
  std::vector<std::size_t> by_name;   // their indexes in order of name
  SafetensorsMetadata metadata;
};

// Refuses anything but a complete description of exactly `data_bytes` bytes without gaps or overlaps. `path` is for
// errors.
SafetensorsHeader parse_safetensors_header(std::string_view text, std::int64_t data_bytes,
                                           const std::filesystem::path& path);

// Length and JSON, padded so that the data begins at a multiple of 8 bytes. DataError on entries that no reader
// accepts.
std::string safetensors_header_text(const std::vector<TensorEntry>& entries, const SafetensorsMetadata& metadata,
                                    const std::filesystem::path& path);

// tensor_bytes() whose errors begin with the file's path.
std::int64_t tensor_bytes_in(const std::filesystem::path& path, const TensorEntry& entry);

// A name from a file as errors show it: quoted, escaped, cut when long.
std::string shown_name(std::string_view name);

}  // namespace orthant
