// Reading files that somebody else made. Only regular files are read: a named pipe would be waited for, and a device
// may have no end. Sizes are looked at before anything is read. Nothing here throws for a file: callers know whether
// theirs is a mistake of configuration or of data, and say so.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

namespace orthant {

// "a folder", "a named pipe", "a device", "a socket", "a symbolic link", "a file": what a path is, by its st_mode.
std::string kind_of_file(mode_t mode);

// Why a file was not read.
struct FileProblem {
  std::string text = {};       // "Permission denied", "it is a named pipe, not a regular file"; empty: it was read
  std::string remedy = {};     // what to do about it
  int error_number = 0;        // when the system refused
  std::string operation = {};  // that the system refused: "open", "read at byte 10"

  explicit operator bool() const { return !text.empty(); }
};

// What to do about an error of the system on a path; empty where nothing is to be said.
std::string remedy_for_errno(const std::filesystem::path& path, int error_number);

struct OpenedFile {
  int fd = -1;  // the caller closes it; -1 when there is a problem
  std::int64_t bytes = 0;
  FileProblem problem;
};

// Opens for reading and never waits for a writer.
OpenedFile open_regular_file(const std::filesystem::path& path);

struct FileText {
  std::string text;
  FileProblem problem;
};

struct ReadLimits {
  std::int64_t max_bytes = 0;
  bool only_text = true;  // a zero byte is a problem: no text has one, and the holes of a sparse file are made of them
};

// All of a file. Memory follows what the file holds, and is bounded by the limit.
FileText read_regular_file(const std::filesystem::path& path, const ReadLimits& limits);

}  // namespace orthant
