// Keeps two jobs from writing one output folder: an flock on `<folder>/.lock`, which also says who holds it. The kernel
// releases it when the process dies, however it dies; the file itself stays and only says who held the lock last.
//
// A job of several attempts takes its folder over from an earlier attempt whose processes may still be there, stopped
// or on a host that is cut off: `.lock` says which attempt has it, and everybody who writes there asks a WriteFence
// first.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "orthant/files/file_handle.h"

namespace orthant {

// Who writes a folder: a job by the name that no other one has, and its attempt, from 0. Without a name no attempt is
// told from another.
struct FolderWriter {
  std::string job = {};
  int attempt = 0;
};

// Held from construction to destruction, and by processes forked without exec meanwhile. Does not wait: ConfigError
// when another holds it ("output folder X is in use by process PID (host H)"), unless that is an earlier attempt of the
// same job; CommError when it is a later one; DataError when the folder cannot be used. A `.lock` that is a link or no
// file is a ConfigError, and what it points to stays as it is.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder, const FolderWriter& writer = {});

  // The same errors as from taking the lock. Takes nothing and makes nothing.
  static void check_free(const std::filesystem::path& folder, const FolderWriter& writer = {});

  // Whether an earlier attempt of the same job had the folder: what that one was writing may be there half.
  bool follows_earlier_attempt() const { return follows_; }

 private:
  void take(const std::filesystem::path& folder, const FolderWriter& writer);

  FileHandle file_;
  bool follows_ = false;
};

// The job that has, or last had, the folder; nothing where none with a name did. IoError.
std::optional<FolderWriter> writer_of(const std::filesystem::path& folder);

// Stands before everything that a process writes into a folder which others may have taken over.
class WriteFence {
 public:
  WriteFence() = default;  // lets everything pass, as one for a writer without a job's name does
  WriteFence(std::filesystem::path folder, FolderWriter writer);

  // CommError that names the attempt, or the process, that has the folder now. Reads one small file; local.
  void check() const;

 private:
  std::filesystem::path folder_;
  FolderWriter writer_;
};

}  // namespace orthant
