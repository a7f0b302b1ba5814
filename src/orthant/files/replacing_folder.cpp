#include "orthant/files/replacing_folder.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <string_view>
#include <system_error>

#include "orthant/base/error.h"
#include "orthant/files/name_suffixes.h"
#include "orthant/files/path_facts.h"

namespace orthant {
namespace {

namespace fs = std::filesystem;

fs::path with_suffix(const fs::path& path, std::string_view suffix) {
  return path.string().append(suffix);
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) throw_io_error(from, fmt::format("rename to {}", to.string()), errno);
}

}  // namespace

ReplacingFolder::ReplacingFolder(const fs::path& path)
    : path_(final_path_of(path)), beside_(with_suffix(path_, kReplacingSuffix)), folder_(made_place()) {}

ReplacingFolder::~ReplacingFolder() {
  std::error_code ignored;
  // Without a folder of that name the new one is what restore_replaced() needs.
  if (unplaced_ && fs::exists(fs::symlink_status(path_, ignored))) fs::remove_all(beside_, ignored);
}

fs::path ReplacingFolder::made_place() const {
  std::error_code ignored;  // what could not be made or removed is met again below
  fs::create_directories(path_.parent_path(), ignored);
  restore_replaced(path_);
  fs::remove_all(beside_, ignored);
  return is_taken(path_) ? beside_ : path_;
}

void ReplacingFolder::commit() {
  folder_.commit();
  if (folder_.final_path() == path_) return;
  unplaced_ = true;
  exchange();
  try {
    fsync_path(path_.parent_path());
  } catch (const DataError&) {
    unplaced_ = false;  // should the names not change back, the old one stays beside
    exchange();
    unplaced_ = true;
    throw;
  }
  unplaced_ = false;
  std::error_code ignored;  // what stays is removed with the next one
  fs::remove_all(beside_, ignored);
}

// The two names change places. Where the file system cannot do that at once, the old one goes aside first, and a death
// in between leaves the new one complete beside it.
void ReplacingFolder::exchange() const {
  if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) return;
  if (errno != EINVAL && errno != ENOSYS)
    throw_io_error(beside_, fmt::format("exchange with {}", path_.string()), errno);
  const auto aside = with_suffix(path_, kReplacedSuffix);
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  rename_or_throw(path_, aside);
  try {
    rename_or_throw(beside_, path_);
  } catch (const DataError&) {
    fs::rename(aside, path_, ignored);
    throw;
  }
  fs::rename(aside, beside_, ignored);  // either name is one that is removed
}

bool restore_replaced(const fs::path& folder) {
  if (is_taken(folder)) return false;
  for (const auto suffix : {kReplacingSuffix, kReplacedSuffix}) {
    const auto beside = with_suffix(folder, suffix);
    if (!is_taken(beside)) continue;
    rename_or_throw(beside, folder);
    return true;
  }
  return false;
}

}  // namespace orthant
