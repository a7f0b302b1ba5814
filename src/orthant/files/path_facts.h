// What lies under a name and what a folder holds, without taking a failure for "nothing there": where the system cannot
// tell, an IoError says so.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace orthant {

// A link counts as what it leads to, and as nothing when that is not there.
bool is_there(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);
bool is_regular_file(const std::filesystem::path& path);

// Absolute, without links, "." and "..", as far as it exists.
std::filesystem::path real_path(const std::filesystem::path& path);

// A link counts as itself: the name is taken.
bool is_taken(const std::filesystem::path& path);

// Without "." and "..", sorted; none when there is no such folder.
std::vector<std::string> names_in_folder(const std::filesystem::path& folder);

// `path` and `suffix`, or the first of `path``suffix`-2, -3, ... that nothing has. Nobody else may make names there.
std::filesystem::path free_name(const std::filesystem::path& path, const std::string& suffix);

// Gives a file or folder a name that nothing has; a DataError when something does.
void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to);

// Removes the file if it is there. IoError.
void remove_file(const std::filesystem::path& path);

// Bytes that its files take on the device, all folders below included; what vanishes meanwhile counts as nothing.
std::int64_t bytes_on_disk(const std::filesystem::path& folder);

// Bytes that this user may still write to the file system of an existing folder.
std::int64_t free_bytes(const std::filesystem::path& folder);

}  // namespace orthant
