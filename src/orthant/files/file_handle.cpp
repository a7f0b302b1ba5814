#include "orthant/files/file_handle.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/base/printable.h"
#include "orthant/base/regular_file.h"

namespace orthant {
namespace {

// open(2), tried again when a signal interrupts it; -1 and errno when the system refuses.
int open_file(const std::filesystem::path& path, int flags) {
  constexpr mode_t kMode = 0666;
  while (true) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, kMode);
    if (fd >= 0 || errno != EINTR) return fd;
  }
}

struct stat status_of(int fd, const std::filesystem::path& path) {
  struct stat status{};
  if (fstat(fd, &status) != 0) throw_io_error(path, "fstat", errno);
  return status;
}

}  // namespace

void throw_io_error(const std::filesystem::path& path, std::string_view operation, int error_number,
                    std::source_location where) {
  const std::string reason = std::generic_category().message(error_number);
  throw IoError(fmt::format("{}: {} failed: {}", printable(path.string()), printable(operation), reason), error_number,
                {.remedy = remedy_for_errno(path, error_number)}, where);
}

void throw_file_problem(const std::filesystem::path& path, const FileProblem& problem, std::source_location where) {
  if (problem.error_number != 0) throw_io_error(path, problem.operation, problem.error_number, where);
  throw DataError(fmt::format("{}: {}", printable(path.string()), problem.text), {.remedy = problem.remedy}, where);
}

FileHandle FileHandle::open_regular(const std::filesystem::path& path) {
  const OpenedFile opened = open_regular_file(path);
  if (opened.fd < 0) throw_file_problem(path, opened.problem);
  return adopt(path, opened.fd);
}

FileHandle FileHandle::adopt(std::filesystem::path path, int fd) {
  FileHandle file;
  file.path_ = std::move(path);
  file.fd_ = fd;
  return file;
}

FileHandle::FileHandle(std::filesystem::path path, int flags) : path_(std::move(path)), fd_(open_file(path_, flags)) {
  if (fd_ < 0) throw_io_error(path_, "open", errno);
}

std::optional<FileHandle> FileHandle::create_new(const std::filesystem::path& path) {
  FileHandle file;
  file.path_ = path;
  file.fd_ = open_file(path, O_WRONLY | O_CREAT | O_EXCL);
  if (file.fd_ < 0 && errno == EEXIST) return std::nullopt;
  if (file.fd_ < 0) throw_io_error(path, "open", errno);
  return file;
}

FileHandle::FileHandle(FileHandle&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), written_bytes_(other.written_bytes_) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
  if (this == &other) return *this;
  if (fd_ >= 0) ::close(fd_);
  path_ = std::move(other.path_);
  fd_ = std::exchange(other.fd_, -1);
  written_bytes_ = other.written_bytes_;
  return *this;
}

FileHandle::~FileHandle() {
  if (fd_ >= 0) ::close(fd_);
}

bool FileHandle::is_regular() const {
  return S_ISREG(status_of(fd_, path_).st_mode);
}

std::int64_t FileHandle::size() const {
  return status_of(fd_, path_).st_size;
}

void FileHandle::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd_, bytes.data(), bytes.size());
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_io_error(path_, fmt::format("write of {} bytes after {} bytes written", bytes.size(), written_bytes_),
                     errno);
    }
    written_bytes_ += count;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void FileHandle::append_all(std::span<const std::byte> bytes) {
  const std::int64_t end = is_regular() ? size() : -1;
  try {
    write_all(bytes);
  } catch (const DataError&) {
    // Should this fail as well, the torn end is what readers of such files drop.
    [[maybe_unused]] const bool undone = end < 0 || ::ftruncate(fd_, end) == 0;
    throw;
  }
}

void FileHandle::read_exactly(std::int64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_, out.data(), out.size(), offset);
    if (count < 0) {
      if (errno == EINTR) continue;
      throw_io_error(path_, fmt::format("read of {} bytes at byte {}", out.size(), offset), errno);
    }
    if (count == 0) {
      throw DataError(
          fmt::format("{}: ends at byte {}, but {} more bytes were expected", path_.string(), offset, out.size()),
          {.remedy = "the file was cut short: copy or download it again"});
    }
    offset += count;
    out = out.subspan(static_cast<std::size_t>(count));
  }
}

void FileHandle::truncate(std::int64_t bytes) {
  if (::ftruncate(fd_, bytes) != 0) throw_io_error(path_, fmt::format("truncation to {} bytes", bytes), errno);
}

void FileHandle::sync() {
  while (::fsync(fd_) != 0) {
    if (errno == EINTR) continue;
    if (errno == EINVAL || errno == ENOTSUP) return;
    throw_io_error(path_, "fsync", errno);
  }
}

void FileHandle::close() {
  // After EINTR the descriptor is gone as well, and what it held is as safe as fsync made it.
  if (fd_ >= 0 && ::close(std::exchange(fd_, -1)) != 0 && errno != EINTR) throw_io_error(path_, "close", errno);
}

}  // namespace orthant
