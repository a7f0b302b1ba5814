#include "orthant/base/regular_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <vector>

#include "orthant/base/human.h"

namespace orthant {
namespace {

FileProblem system_problem(const std::filesystem::path& path, std::string operation, int error_number) {
  return {.text = std::generic_category().message(error_number),
          .remedy = remedy_for_errno(path, error_number),
          .error_number = error_number,
          .operation = std::move(operation)};
}

FileProblem size_problem(std::int64_t bytes, std::int64_t max_bytes) {
  return {
      .text = fmt::format("it has {}, and such a file has at most {}", format_bytes(bytes), format_bytes(max_bytes)),
      .remedy = "name the right file: this one is damaged or of another kind"};
}

// Appends what the file still holds; stops after one byte more than the limit.
FileProblem append_all(const std::filesystem::path& path, const OpenedFile& file, const ReadLimits& limits,
                       std::string& text) {
  constexpr std::size_t kFirstChunk = std::size_t{64} << 10;
  constexpr std::size_t kChunk = std::size_t{1} << 20;
  std::vector<char> chunk(kFirstChunk);
  while (true) {
    const ssize_t count = ::read(file.fd, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_problem(path, fmt::format("read at byte {}", text.size()), errno);
    if (count == 0) return {};
    const std::string_view found(chunk.data(), static_cast<std::size_t>(count));
    if (const auto zero = found.find('\0'); limits.only_text && zero != std::string_view::npos) {
      return {.text = fmt::format("byte {} is zero, and no text has such a byte", text.size() + zero),
              .remedy = "the file is damaged, has holes or is of another kind: copy it again"};
    }
    // Only now is it worth memory: a sparse file has ended above.
    if (text.empty()) text.reserve(static_cast<std::size_t>(std::min(file.bytes, limits.max_bytes)));
    text += found;
    if (static_cast<std::int64_t>(text.size()) > limits.max_bytes) {
      return size_problem(static_cast<std::int64_t>(text.size()), limits.max_bytes);
    }
    chunk.resize(kChunk);
  }
}

FileProblem kind_problem(mode_t mode) {
  return {.text = fmt::format("it is {}{}", kind_of_file(mode), S_ISDIR(mode) ? "" : ", not a regular file"),
          .remedy = "name a regular file"};
}

}  // namespace

std::string kind_of_file(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISLNK(mode)) return "a symbolic link";
  return "a file";
}

std::string remedy_for_errno(const std::filesystem::path& path, int error_number) {
  switch (error_number) {
    case ENOSPC: {
      std::error_code error;
      const auto space = std::filesystem::space(path, error);
      const std::string left =
          error ? "" : fmt::format(" ({} left)", format_bytes(static_cast<std::int64_t>(space.available)));
      return fmt::format("free space on that file system{}, or choose a folder on another one", left);
    }
    case EDQUOT:
      return "free space within the quota, or choose a folder on another file system";
    case EFBIG:
      return "raise the limit on file size (ulimit -f), or choose a file system that takes larger files";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folder";
    case EROFS:
      return "choose a folder on a file system that can be written";
    case ENOENT:
      return "check the path, and that its folder exists";
    case ENOTDIR:
      return "check the path: a part of it is a file, not a folder";
    case ENAMETOOLONG:
      return "use a shorter path";
    case ELOOP:
      return "check the path: its symbolic links lead in a circle, or to where no link may be";
    case EMFILE:
    case ENFILE:
      return "raise the limit on open files (ulimit -n)";
    default:
      return "";
  }
}

OpenedFile open_regular_file(const std::filesystem::path& path) {
  OpenedFile file;
  do {
    file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  } while (file.fd < 0 && errno == EINTR);
  if (file.fd < 0) {
    // A socket cannot be opened: "No such device or address" would tell nobody what it is.
    const int error_number = errno;
    struct stat status{};
    if (error_number == ENXIO && ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      file.problem = kind_problem(status.st_mode);
    } else {
      file.problem = system_problem(path, "open", error_number);
    }
    return file;
  }
  struct stat status{};
  if (::fstat(file.fd, &status) != 0) {
    file.problem = system_problem(path, "fstat", errno);
  } else if (!S_ISREG(status.st_mode)) {
    file.problem = kind_problem(status.st_mode);
  }
  file.bytes = status.st_size;
  if (file.problem) ::close(std::exchange(file.fd, -1));
  return file;
}

FileText read_regular_file(const std::filesystem::path& path, const ReadLimits& limits) {
  FileText result;
  const auto file = open_regular_file(path);
  result.problem = file.problem;
  if (file.fd < 0) return result;
  result.problem = file.bytes > limits.max_bytes ? size_problem(file.bytes, limits.max_bytes)
                                                 : append_all(path, file, limits, result.text);
  ::close(file.fd);
  return result;
}

}  // namespace orthant
