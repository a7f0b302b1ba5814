// A file of JSON lines that only grows, one line per step, and what a resumed run cuts off its end. A line is there
// whole or, after a crash in the middle of a write, torn and last; torn lines are dropped by whoever opens the file
// next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "orthant/files/file_handle.h"
#include "orthant/files/folder_lock.h"

namespace orthant {

// Owns the open file; one writer at a time. Errors are DataErrors.
class LineFile {
 public:
  // Opens or creates the file and drops a torn last line.
  explicit LineFile(const std::filesystem::path& path);

  // The same for folder/name, below which no link is followed. What the fence refuses is not written: CommError.
  LineFile(const std::filesystem::path& folder, const std::filesystem::path& name, const WriteFence& fence = {});

  // One write() of the line and its end, which other processes see at once; on failure nothing of it stays in the file.
  // The line then waits in memory and is written, in order, with the next one that finds room. It may not hold a line
  // break: InternalError.
  void append(std::string_view line);

  // Blocks until what was written is on the device. Another thread may append meanwhile.
  void sync() { file_.sync(); }

  // Writes what waits. The destructor tries too, but cannot tell of a failure.
  void flush();
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

 private:
  LineFile(FileHandle file, WriteFence fence);

  FileHandle file_;
  WriteFence fence_;
  std::string waiting_;
  std::optional<std::int64_t> whole_bytes_;  // after a failure: a torn line may begin there
};

// What follows is about folder/name, below which no link is followed. A file that does not exist is left so.

// Appends every line whose "step" is greater than `step` to `<name>.superseded`, which is on the device then; lines
// that it ends with already are not appended again. DataError that names the line when one is not a JSON object or its
// step is not a whole number; nothing has changed then.
void set_aside_lines_after_step(const std::filesystem::path& folder, const std::filesystem::path& name,
                                std::int64_t step);

// Writes the file anew: whoever has it open for appending appends to what nobody reads any more. IoError.
void replace_lines(const std::filesystem::path& folder, const std::filesystem::path& name);

// Takes these lines and a torn last one out of the file, once they are set aside; lines without a step stay. The file
// is replaced as a whole: call it before the file is opened for appending. The same errors.
void cut_lines_after_step(const std::filesystem::path& folder, const std::filesystem::path& name, std::int64_t step);

// Whether it holds a whole line.
bool holds_lines(const std::filesystem::path& folder, const std::filesystem::path& name);

// The last whole line without its end; empty when there is none.
std::string last_line(const std::filesystem::path& folder, const std::filesystem::path& name);

}  // namespace orthant
