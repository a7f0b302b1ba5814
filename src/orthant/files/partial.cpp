#include "orthant/files/partial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/files/name_suffixes.h"

namespace orthant {
namespace {

// Whether the name still leads to what was opened under it.
bool still_there(const FileHandle& made) {
  struct stat named, opened;
  return ::stat(made.path().c_str(), &named) == 0 && ::fstat(made.fd(), &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

// Calls create(path) with one name after another until it makes something that did not exist, and takes the flock. It
// waits for nobody but who looks for stale partials at the same moment, and goes on where that one removed it; without
// flock the name alone must do.
template <typename Create>
FileHandle first_free(const std::filesystem::path& final_path, const Create& create) {
  const std::string stem = fmt::format("{}{}{}", final_path.string(), kPartialMark, getpid());
  for (int attempt = 1;; ++attempt) {
    std::optional<FileHandle> made = create(attempt == 1 ? stem : fmt::format("{}-{}", stem, attempt));
    if (!made) continue;
    while (::flock(made->fd(), LOCK_EX) != 0 && errno == EINTR) {
    }
    if (still_there(*made)) return std::move(*made);
  }
}

// The process number in "step-5.partial-1234" or "step-5.partial-1234-2"; nothing for other names.
std::optional<pid_t> maker_of(std::string_view name) {
  const auto mark = name.rfind(kPartialMark);
  if (mark == std::string_view::npos || mark == 0) return std::nullopt;
  const std::string_view digits = name.substr(mark + kPartialMark.size());
  const char* const end = digits.data() + digits.size();
  pid_t pid = 0;
  auto read = std::from_chars(digits.data(), end, pid);
  if (read.ec != std::errc() || pid <= 0) return std::nullopt;
  if (read.ptr != end) {
    unsigned attempt = 0;
    if (*read.ptr != '-') return std::nullopt;
    read = std::from_chars(read.ptr + 1, end, attempt);
    if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  }
  return pid;
}

bool is_left_behind(const std::filesystem::path& path, pid_t maker) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) return false;  // finished meanwhile, or not ours to judge
  const bool free = ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  const int reason = errno;
  ::close(fd);
  if (free) return true;
  if (reason == EWOULDBLOCK) return false;
  return ::kill(maker, 0) != 0 && errno == ESRCH;
}

}  // namespace

std::filesystem::path final_path_of(const std::filesystem::path& path) {
  std::filesystem::path whole = std::filesystem::absolute(path).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();
  if (path.empty() || !whole.has_filename()) {
    throw DataError(fmt::format("\"{}\" does not name a file or folder that can be made", path.string()));
  }
  return whole;
}

FileHandle make_partial_file(const std::filesystem::path& final_path) {
  return first_free(final_path, FileHandle::create_new);
}

FileHandle make_partial_folder(const std::filesystem::path& final_path) {
  return first_free(final_path, [](const std::filesystem::path& path) -> std::optional<FileHandle> {
    constexpr mode_t kMode = 0777;
    if (::mkdir(path.c_str(), kMode) != 0) {
      if (errno == EEXIST) return std::nullopt;
      throw_io_error(path, "mkdir", errno);
    }
    try {
      return FileHandle(path, O_RDONLY | O_DIRECTORY);
    } catch (const DataError&) {
      ::rmdir(path.c_str());
      throw;
    }
  });
}

std::vector<std::filesystem::path> stale_partials(const std::filesystem::path& parent) {
  std::error_code error;
  std::vector<std::filesystem::path> stale;
  for (std::filesystem::directory_iterator entry(parent, error), end; !error && entry != end; entry.increment(error)) {
    const auto maker = maker_of(entry->path().filename().string());
    if (maker && is_left_behind(entry->path(), *maker)) stale.push_back(entry->path());
  }
  if (error) throw_io_error(parent, "listing", error.value());
  std::sort(stale.begin(), stale.end());
  return stale;
}

void remove_left_partials(const std::filesystem::path& final_path) noexcept try {
  const auto whole = final_path_of(final_path);
  const auto stem = whole.filename().string() + std::string(kPartialMark);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(whole.parent_path(), error)) {
    const auto name = entry.path().filename().string();
    if (!name.starts_with(stem) || !maker_of(name)) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    std::error_code ignored;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) std::filesystem::remove_all(entry.path(), ignored);
    ::close(fd);
  }
} catch (const std::exception&) {
  // It is a courtesy: whoever writes next is told what is wrong with the place.
}

}  // namespace orthant
