#include "orthant/files/beneath.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <string>

#include "orthant/base/error.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, mode_t found, bool wants_folder) {
  if (S_ISLNK(found)) {
    throw ConfigError(fmt::format("{}: is a symbolic link, and a run follows none in its output folder", path.string()),
                      {.remedy = "put the file or folder itself there, remove the link, or name another --output-dir"});
  }
  throw ConfigError(fmt::format("{}: is {}, and a run has {} there", path.string(), kind_of_file(found),
                                wants_folder ? "a folder" : "a file"),
                    {.remedy = "move it away, or name another --output-dir"});
}

// Opens one step of a path and says what stands in the way.
FileHandle open_step(const FileHandle& parent, const fs::path& step, int flags) {
  constexpr mode_t kMode = 0666;
  const auto path = parent.path() / step;
  int fd = -1;
  do {
    fd = ::openat(parent.fd(), step.c_str(), flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, kMode);
  } while (fd < 0 && errno == EINTR);
  const int error_number = errno;
  struct stat status{};
  const bool wants_folder = (flags & O_DIRECTORY) != 0;
  if (fd < 0) {
    const bool there = ::fstatat(parent.fd(), step.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !(wants_folder ? S_ISDIR(status.st_mode) : S_ISREG(status.st_mode))) {
      refuse(path, status.st_mode, wants_folder);
    }
    throw_io_error(path, "open", error_number);
  }
  auto file = FileHandle::adopt(path, fd);
  if (::fstat(fd, &status) != 0) throw_io_error(path, "fstat", errno);
  if (!(wants_folder ? S_ISDIR(status.st_mode) : S_ISREG(status.st_mode))) refuse(path, status.st_mode, wants_folder);
  return file;
}

}  // namespace

FileHandle open_beneath(const fs::path& folder, const fs::path& name, int flags) {
  auto parent = FileHandle(folder, O_PATH | O_DIRECTORY);
  for (const auto& step : name.parent_path()) parent = open_step(parent, step, O_PATH | O_DIRECTORY);
  return open_step(parent, name.filename(), flags);
}

void make_folder_beneath(const fs::path& folder, std::string_view name) {
  constexpr mode_t kMode = 0777;
  const auto parent = FileHandle(folder, O_PATH | O_DIRECTORY);
  const fs::path step(name);
  if (::mkdirat(parent.fd(), step.c_str(), kMode) == 0) return;
  const int error_number = errno;
  if (error_number != EEXIST) throw_io_error(folder / step, "mkdir", error_number);
  open_step(parent, step, O_PATH | O_DIRECTORY);
}

void check_run_entries(const fs::path& folder, const std::vector<FolderEntry>& entries) {
  for (const auto& [name, is_folder] : entries) {
    const auto path = folder / name;
    struct stat status{};
    if (::lstat(path.c_str(), &status) != 0) {
      if (errno == ENOENT || errno == ENOTDIR) continue;
      throw_io_error(path, "lstat", errno);
    }
    if (!(is_folder ? S_ISDIR(status.st_mode) : S_ISREG(status.st_mode))) refuse(path, status.st_mode, is_folder);
  }
}

}  // namespace orthant
