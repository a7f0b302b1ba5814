#include "orthant/files/atomic_folder.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/files/path_facts.h"

namespace orthant {
namespace {

std::filesystem::path refuse_existing(std::filesystem::path path) {
  if (is_taken(path)) {
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
    if (unknown) throw_io_error(entry->path(), "stat", unknown.value());
    if (kind == std::filesystem::file_type::directory) sync_tree(entry->path());
    if (kind == std::filesystem::file_type::regular) fsync_path(entry->path());
  }
  if (error) throw_io_error(folder, "listing", error.value());
  fsync_path(folder);
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
