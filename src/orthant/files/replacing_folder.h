// A folder that takes the place of another of its name when it is complete, in one step: there is the old one or the
// new one, never a part of either. Errors are DataErrors; after one the old folder is where it was and nothing else is
// left.
#pragma once

#include <filesystem>

#include "orthant/files/atomic_folder.h"

namespace orthant {

class ReplacingFolder {
 public:
  // Makes the parent. `path` need not exist.
  explicit ReplacingFolder(const std::filesystem::path& path);
  // Without commit() nothing of it stays, unless the old folder could not get its name back.
  ~ReplacingFolder();
  ReplacingFolder(const ReplacingFolder&) = delete;
  ReplacingFolder& operator=(const ReplacingFolder&) = delete;

  // Where to write.
  const std::filesystem::path& path() const { return folder_.path(); }

  // Blocks until everything and the new name are on the device; then the old folder goes. Once.
  void commit();

 private:
  void exchange() const;
  std::filesystem::path made_place() const;

  std::filesystem::path path_;
  std::filesystem::path beside_;
  AtomicFolder folder_;
  bool unplaced_ = false;  // beside_ holds a folder that nobody was promised
};

// Gives `folder` its name when a death or an error came in between, on a file system that cannot exchange two names at
// once: the new one is complete beside it then, or the old one. Whether it did. IoError.
bool restore_replaced(const std::filesystem::path& folder);

}  // namespace orthant
