#include "orthant/files/folder_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <span>
#include <sstream>
#include <string>
#include <utility>

#include "orthant/base/error.h"
#include "orthant/files/beneath.h"
#include "orthant/files/partial.h"
#include "orthant/files/path_facts.h"
#include "orthant/files/whole_file.h"

namespace orthant {
namespace {

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown";
  return name.data();
}

constexpr const char* kLockFile = ".lock";
constexpr std::int64_t kMostLockBytes = 4096;

// What the holder wrote: "1234 node7", and "1234 node7 0f3a... 2" where its job has a name. It may be between taking
// the lock and writing.
struct Holder {
  bool is_told = false;
  std::string process = "another process";
  FolderWriter writer = {};
};

Holder holder_in(const std::filesystem::path& folder) {
  std::istringstream text(is_taken(folder / kLockFile) ? read_file(folder / kLockFile, kMostLockBytes) : "");
  pid_t pid = 0;
  std::string host;
  Holder holder;
  if (text >> pid >> host) {
    holder.is_told = true;
    holder.process = fmt::format("process {} (host {})", pid, host);
  }
  if (!(text >> holder.writer.job >> holder.writer.attempt)) holder.writer = {};
  return holder;
}

bool is_same_job(const Holder& holder, const FolderWriter& writer) {
  return !writer.job.empty() && holder.writer.job == writer.job;
}

void refuse_later_attempt(const std::filesystem::path& folder, const Holder& holder, const FolderWriter& writer) {
  if (!is_same_job(holder, writer) || holder.writer.attempt <= writer.attempt) return;
  throw CommError(fmt::format("output folder {} belongs to attempt {} of this job now, {}: attempt {} writes nothing "
                              "there any more",
                              folder.string(), holder.writer.attempt, holder.process, writer.attempt),
                  {.remedy = "nothing is lost: the later attempt goes on; end this one"});
}

bool try_flock(const FileHandle& file, int how) {
  while (::flock(file.fd(), how | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) throw_io_error(file.path(), "flock", errno);
    return false;
  }
  return true;
}

// False when an earlier attempt of the same job holds it.
bool take_flock(const FileHandle& file, const std::filesystem::path& folder, const FolderWriter& writer, int how) {
  if (try_flock(file, how)) return true;
  const auto holder = holder_in(folder);
  if (is_same_job(holder, writer) && holder.writer.attempt < writer.attempt) return false;
  throw ConfigError(fmt::format("output folder {} is in use by {}", folder.string(), holder.process),
                    {.remedy = "wait until it has ended, or choose another output folder"});
}

// Whoever reads meanwhile finds the former text or this one.
void write_holder(FileHandle& file, const FolderWriter& writer) {
  auto text = fmt::format("{} {}", ::getpid(), host_name());
  if (!writer.job.empty()) text += fmt::format(" {} {}", writer.job, writer.attempt);
  text += '\n';
  file.write_all(std::as_bytes(std::span(text)));
  file.truncate(static_cast<std::int64_t>(text.size()));
  if (!writer.job.empty()) file.sync();  // for ranks on other hosts, which share the folder over a network
}

bool still_has_its_name(const FileHandle& file) {
  struct stat named, opened;
  return ::stat(file.path().c_str(), &named) == 0 && ::fstat(file.fd(), &opened) == 0 &&
         named.st_ino == opened.st_ino && named.st_dev == opened.st_dev;
}

// A new file in the place of the one that the earlier attempt holds, which that one has for ever.
FileHandle replace_lock(const std::filesystem::path& folder, const FolderWriter& writer) {
  const auto path = folder / kLockFile;
  auto file = make_partial_file(path);
  write_holder(file, writer);
  if (::rename(file.path().c_str(), path.c_str()) != 0) throw_io_error(file.path(), "rename to .lock", errno);
  return file;
}

}  // namespace

void FolderLock::check_free(const std::filesystem::path& folder, const FolderWriter& writer) {
  if (!is_taken(folder / kLockFile)) return;
  const auto file = open_beneath(folder, kLockFile, O_RDONLY);
  refuse_later_attempt(folder, holder_in(folder), writer);
  take_flock(file, folder, writer, LOCK_SH);
}

FolderLock::FolderLock(const std::filesystem::path& folder, const FolderWriter& writer)
    : file_(open_beneath(folder, kLockFile, O_RDWR | O_CREAT)) {
  const auto before = holder_in(folder);
  refuse_later_attempt(folder, before, writer);
  follows_ = is_same_job(before, writer) && before.writer.attempt < writer.attempt;
  take(folder, writer);
}

void FolderLock::take(const std::filesystem::path& folder, const FolderWriter& writer) {
  if (!take_flock(file_, folder, writer, LOCK_EX)) {
    file_ = replace_lock(folder, writer);
    return;
  }
  if (still_has_its_name(file_)) return write_holder(file_, writer);
  *this = FolderLock(folder, writer);  // somebody took it over between opening and locking
}

std::optional<FolderWriter> writer_of(const std::filesystem::path& folder) {
  auto writer = holder_in(folder).writer;
  if (writer.job.empty()) return std::nullopt;
  return writer;
}

WriteFence::WriteFence(std::filesystem::path folder, FolderWriter writer)
    : folder_(std::move(folder)), writer_(std::move(writer)) {}

void WriteFence::check() const {
  if (writer_.job.empty()) return;
  const auto holder = holder_in(folder_);
  refuse_later_attempt(folder_, holder, writer_);
  if (!holder.is_told || is_same_job(holder, writer_)) return;
  throw CommError(fmt::format("output folder {} belongs to {} now: this job writes nothing there any more",
                              folder_.string(), holder.process),
                  {.remedy = "look for the other job, and give each an --output-dir of its own"});
}

}  // namespace orthant
