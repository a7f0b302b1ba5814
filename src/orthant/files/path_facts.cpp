#include "orthant/files/path_facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

// Nothing when there is nothing of that name.
std::optional<struct stat> status_at(const fs::path& path, bool follow) {
  struct stat status{};
  while (::fstatat(AT_FDCWD, path.c_str(), &status, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == EINTR) continue;
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw_io_error(path, "stat", errno);
  }
  return status;
}

}  // namespace

bool is_there(const fs::path& path) {
  return status_at(path, /*follow=*/true).has_value();
}

bool is_folder(const fs::path& path) {
  const auto status = status_at(path, /*follow=*/true);
  return status && S_ISDIR(status->st_mode);
}

bool is_regular_file(const fs::path& path) {
  const auto status = status_at(path, /*follow=*/true);
  return status && S_ISREG(status->st_mode);
}

fs::path real_path(const fs::path& path) {
  std::error_code error;
  auto found = fs::absolute(path, error);
  if (!error) found = fs::weakly_canonical(found, error);
  if (error) throw_io_error(path, "resolution of links", error.value());
  return found;
}

bool is_taken(const fs::path& path) {
  return status_at(path, /*follow=*/false).has_value();
}

std::vector<std::string> names_in_folder(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator item(folder, error), end; !error && item != end; item.increment(error)) {
    names.push_back(item->path().filename().string());
  }
  if (error.value() == ENOENT && names.empty()) return {};
  if (error) throw_io_error(folder, "listing", error.value());
  std::ranges::sort(names);
  return names;
}

fs::path free_name(const fs::path& path, const std::string& suffix) {
  const auto wanted = path.string() + suffix;
  auto name = wanted;
  for (int number = 2; is_taken(name); ++number) name = fmt::format("{}-{}", wanted, number);
  return name;
}

void rename_to_new(const fs::path& from, const fs::path& to) {
  const auto refuse_taken = [&] {
    if (!is_taken(to)) return;
    throw DataError(fmt::format("{}: exists already and is not replaced", to.string()),
                    {.remedy = "remove it, or choose another name"});
  };
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  int reason = errno;
  if (reason == EINVAL || reason == ENOSYS) {  // the file system or kernel knows only the plain call
    refuse_taken();
    if (::rename(from.c_str(), to.c_str()) == 0) return;
    reason = errno;
  }
  if (reason == EEXIST) refuse_taken();
  throw_io_error(from, fmt::format("rename to {}", to.string()), reason);
}

void remove_file(const fs::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_io_error(path, "unlink", errno);
}

std::int64_t bytes_on_disk(const fs::path& folder) {
  constexpr std::int64_t kStatBlock = 512;
  std::int64_t bytes = 0;
  for (const auto& name : names_in_folder(folder)) {
    const auto status = status_at(folder / name, /*follow=*/false);
    if (!status) continue;
    bytes += status->st_blocks * kStatBlock;
    if (S_ISDIR(status->st_mode)) bytes += bytes_on_disk(folder / name);
  }
  return bytes;
}

std::int64_t free_bytes(const fs::path& folder) {
  struct statvfs space{};
  while (::statvfs(folder.c_str(), &space) != 0) {
    if (errno != EINTR) throw_io_error(folder, "statvfs", errno);
  }
  return static_cast<std::int64_t>(space.f_bavail) * static_cast<std::int64_t>(space.f_frsize);
}

}  // namespace orthant
