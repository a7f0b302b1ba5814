#include "orthant/files/atomic_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "orthant/base/error.h"

namespace orthant {
namespace {

std::filesystem::path refuse_existing(std::filesystem::path path) {
  std::error_code ignored;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, ignored))) {
    throw DataError(fmt::format("{}: exists already and is not replaced", path.string()),
                    {.remedy = "remove it, or choose another name"});
  }
  return path;
}

// Children before their folder, so that a name on the device always leads to contents on the device.
void sync_tree(const std::filesystem::path& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    const auto kind = entry->symlink_status(unknown).type();
    if (kind == std::filesystem::file_type::directory) sync_tree(entry->path());
    if (kind == std::filesystem::file_type::regular) fsync_path(entry->path());
  }
  if (error) throw_io_error(folder, "listing", error.value());
  fsync_path(folder);
}

void rename_to_new(const std::filesystem::path& from, const std::filesystem::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EINVAL || errno == ENOSYS) {  // the file system or kernel knows only the plain call
    refuse_existing(to);
    if (::rename(from.c_str(), to.c_str()) == 0) return;
  }
  if (errno == EEXIST) refuse_existing(to);
  throw_io_error(from, fmt::format("rename to {}", to.string()), errno);
}

}  // namespace

AtomicFolder::AtomicFolder(const std::filesystem::path& final_path)
    : final_path_(refuse_existing(final_path_of(final_path))),
      folder_(make_partial_folder(final_path_)),
      owner_(::getpid()) {}

AtomicFolder::~AtomicFolder() {
  if (committed_ || ::getpid() != owner_) return;
  std::error_code ignored;
  std::filesystem::remove_all(folder_.path(), ignored);
}

void AtomicFolder::commit() {
  if (committed_) throw InternalError(fmt::format("{}: committed twice", final_path_.string()));
  sync_tree(folder_.path());
  rename_to_new(folder_.path(), final_path_);
  committed_ = true;
  try {
    fsync_path(final_path_.parent_path());
  } catch (const DataError&) {  // nobody knows whether the name would outlive a loss of power: it goes again
    committed_ = ::rename(final_path_.c_str(), folder_.path().c_str()) != 0;
    throw;
  }
}

}  // namespace orthant
