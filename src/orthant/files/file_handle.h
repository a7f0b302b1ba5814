// An open file whose every failure is a DataError (an IoError where the system refuses) that names the path, the
// operation, the system's reason and, where it helps, the bytes. The other files of this layer do their input and
// output through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <source_location>
#include <span>
#include <string_view>

#include "orthant/base/regular_file.h"

namespace orthant {

// Owns a file descriptor, closed on exec. Not for use by two threads at once.
class FileHandle {
 public:
  // `flags` as for open(2); new files get mode 0666 less the umask.
  FileHandle(std::filesystem::path path, int flags);

  // For reading. A pipe, a device or a folder is refused by name, and nothing is waited for.
  static FileHandle open_regular(const std::filesystem::path& path);

  // Takes over a descriptor that was opened elsewhere.
  static FileHandle adopt(std::filesystem::path path, int fd);

  // A new file, open for writing; nothing when the path exists.
  static std::optional<FileHandle> create_new(const std::filesystem::path& path);

  FileHandle(FileHandle&& other) noexcept;
  FileHandle& operator=(FileHandle&& other) noexcept;
  ~FileHandle();

  int fd() const { return fd_; }
  const std::filesystem::path& path() const { return path_; }
  bool is_regular() const;
  std::int64_t size() const;

  // At the file's position.
  void write_all(std::span<const std::byte> bytes);

  // For files opened with O_APPEND that nobody else writes: on failure the file keeps nothing of `bytes`.
  void append_all(std::span<const std::byte> bytes);

  // Fills `out` from `offset` on, wherever the file's position is; a file that ends before is an error.
  void read_exactly(std::int64_t offset, std::span<std::byte> out) const;

  void truncate(std::int64_t bytes);

  // Blocks until the contents are on the device. What has no such notion (a pipe, some folders) counts as done.
  void sync();

  // The destructor closes too, but cannot tell of a failure.
  void close();

 private:
  FileHandle() = default;

  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t written_bytes_ = 0;
};

// An IoError: "/out/a.safetensors: write of 4096 bytes failed: No space left on device", with what to do about it.
[[noreturn]] void throw_io_error(const std::filesystem::path& path, std::string_view operation, int error_number,
                                 std::source_location where = std::source_location::current());

// The same for a file that was not read: the system refused, or it is no file of the kind that was asked for.
[[noreturn]] void throw_file_problem(const std::filesystem::path& path, const FileProblem& problem,
                                     std::source_location where = std::source_location::current());

}  // namespace orthant
