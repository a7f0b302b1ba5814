// A folder that appears under its name complete or not at all: a checkpoint. It is written as `<final>.partial-<pid>`
// beside the final name; commit() brings everything to the device and renames it. Errors are DataErrors.
#pragma once

#include <sys/types.h>

#include <filesystem>

#include "orthant/files/file_handle.h"
#include "orthant/files/partial.h"
#include "orthant/files/whole_file.h"

namespace orthant {

// Owns the partial folder: without commit() it is removed on destruction, by the process that made it only. The parent
// must exist. Others (ranks of the same job) may write files inside path(); the owner commits when all are done.
class AtomicFolder {
 public:
  // Refuses a final path that exists.
  explicit AtomicFolder(const std::filesystem::path& final_path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  // Where to write; the partial folder until commit(), the final one after.
  const std::filesystem::path& path() const { return committed_ ? final_path_ : folder_.path(); }
  const std::filesystem::path& final_path() const { return final_path_; }

  // Blocks until every file, every folder and the new name are on the device. Once.
  void commit();

 private:
  std::filesystem::path final_path_;
  FileHandle folder_;
  pid_t owner_;
  bool committed_ = false;
};

}  // namespace orthant
