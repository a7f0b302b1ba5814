#include "orthant/files/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <sstream>
#include <string>

#include "orthant/base/error.h"
#include "orthant/files/beneath.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

// What the holder wrote: "1234 node7". It may be between taking the lock and writing.
std::string holder(const std::filesystem::path& lock_file) {
  std::istringstream text(read_file(lock_file, 4096));
  pid_t pid = 0;
  std::string host;
  if (!(text >> pid >> host)) return "another process";
  return fmt::format("process {} (host {})", pid, host);
}

void take_lock(const FileHandle& file, const std::filesystem::path& folder, int how) {
  while (::flock(file.fd(), how | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) throw_io_error(file.path(), "flock", errno);
    throw ConfigError(fmt::format("output folder {} is in use by {}", folder.string(), holder(file.path())),
                      {.remedy = "wait until it has ended, or choose another output folder"});
  }
}

}  // namespace

void FolderLock::check_free(const std::filesystem::path& folder) {
  if (!is_taken(folder / ".lock")) return;
  take_lock(open_beneath(folder, ".lock", O_RDONLY), folder, LOCK_SH);
}

FolderLock::FolderLock(const std::filesystem::path& folder) : file_(open_beneath(folder, ".lock", O_RDWR | O_CREAT)) {
  take_lock(file_, folder, LOCK_EX);
  file_.truncate(0);
  const std::string text = fmt::format("{} {}\n", ::getpid(), host_name());
  file_.write_all(std::as_bytes(std::span(text)));
}

}  // namespace orthant
