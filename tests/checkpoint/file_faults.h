// Faults of the file system inside a test program. file_faults.cpp defines the C library's calls that change files; the
// linker binds them for everything in the program, libstdc++'s std::filesystem too. They count what touches a watched
// folder and, when told so, die, fail or do less than they were asked for. Reads pass. Per process: forked ranks arm
// their own.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace orthant::test {

// A call that touched the watched folder.
struct FileCall {
  std::string name;  // as in C: "openat", "write"
  std::string path;
  std::int64_t bytes = 0;   // asked for, of a write
  bool for_writing = true;  // false: an open that changes nothing, and the close after it
  std::string to = {};      // the new name, of a rename
};

struct FileFault {
  enum class Kind {
    none,
    die_before,    // SIGKILL instead of the call
    die_halfway,   // SIGKILL when half of the bytes of a write are there
    die_after,     // SIGKILL when the call is done
    fail,          // the call fails with `error`; a close closes all the same
    full_disk,     // writes take what is left of `room`, then fail with ENOSPC
    short_writes,  // a write takes 1 to `bytes` bytes
    interrupted,   // every second open, write, sync and close fails with EINTR; a close closes all the same
  };
  Kind kind = Kind::none;
  std::int64_t call = 0;  // counted from 1
  int error = 0;
  bool lasting = false;  // that call and all after it fail
  std::int64_t bytes = 0;
  std::atomic<std::int64_t>* room = nullptr;  // bytes; in shared memory when several processes fill one disk
  bool plain_renames = false;                 // besides: renameat2 is not supported (EINVAL) and not counted
};

// Counts from here on what touches `folder` (absolute) or something in it. Until unwatch_files(); threads may call.
void watch_files(const std::filesystem::path& folder, FileFault fault = {});
std::vector<FileCall> watched_calls();
void unwatch_files();

}  // namespace orthant::test
