// Small files read and replaced whole, such as configurations and manifests, and what is asked of a file as a whole.
// A replaced file is either the old or the new one, whatever dies when. Errors are DataErrors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace orthant {

// All of a regular file; others are refused by name, and so is one larger than `max_bytes`, before it is read.
inline constexpr std::int64_t kMaxFileBytes = std::int64_t{512} << 20;
std::string read_file(const std::filesystem::path& path, std::int64_t max_bytes = kMaxFileBytes);

// The same for text of somebody else: a zero byte, such as the holes of a sparse file are made of, is refused too.
std::string read_text_file(const std::filesystem::path& path, std::int64_t max_bytes = kMaxFileBytes);

// Writes `<path>.partial-<pid>`, brings it to the device, renames it and brings the folder to the device.
void write_file_atomically(const std::filesystem::path& path, std::string_view text);

// Brings a file's contents, or a folder's list of names, to the device.
void fsync_path(const std::filesystem::path& path);

// Reads in chunks, whatever the size.
std::uint64_t xxh64_of_file(const std::filesystem::path& path);

// Of one of the file's hashed blocks, see xxhash.h, whose bytes `take` is given in passing. A file that ends before it
// is a DataError.
using TakeBytes = std::function<void(std::span<const std::byte>)>;
std::uint64_t xxh64_of_block(const std::filesystem::path& path, std::int64_t block, std::int64_t file_bytes,
                             const TakeBytes& take = {});

}  // namespace orthant
