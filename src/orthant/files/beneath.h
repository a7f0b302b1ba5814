// What a run writes lies beneath its output folder. The folder itself may be reached in any way that its user named;
// below it no symbolic link is followed, so that nobody who can put a link there makes a run write or cut a file
// elsewhere.
#pragma once

#include <filesystem>
#include <string_view>
#include <vector>

#include "orthant/files/file_handle.h"

namespace orthant {

// Opens folder/name, where `name` may have several steps. `flags` as for open(2). ConfigError that names the step when
// one is a symbolic link, or the last is there and no regular file; DataError when the system refuses.
FileHandle open_beneath(const std::filesystem::path& folder, const std::filesystem::path& name, int flags);

// Makes the folder folder/name of one step unless it is there. The same errors.
void make_folder_beneath(const std::filesystem::path& folder, std::string_view name);

// What a run expects to find under a name, or to make there.
struct FolderEntry {
  std::string_view name;
  bool is_folder = false;
};

// ConfigError that names the first of these entries that is a symbolic link or of another kind. Entries that are not
// there are as they should be, and so is everything in a folder that does not exist.
void check_run_entries(const std::filesystem::path& folder, const std::vector<FolderEntry>& entries);

}  // namespace orthant
