// Keeps two jobs from writing one output folder: an flock on `<folder>/.lock`. The kernel releases it when the process
// dies, however it dies; the file itself stays and only says who held the lock last.
#pragma once

#include <filesystem>

#include "orthant/files/file_handle.h"

namespace orthant {

// Held from construction to destruction, and by processes forked without exec meanwhile. Does not wait: ConfigError
// when another holds it ("output folder X is in use by process PID (host H)"), DataError when the folder cannot be
// used. A `.lock` that is a link or no file is a ConfigError, and what it points to stays as it is.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);

  // The same ConfigErrors as from taking the lock. Takes nothing and makes nothing.
  static void check_free(const std::filesystem::path& folder);

 private:
  FileHandle file_;
};

}  // namespace orthant
