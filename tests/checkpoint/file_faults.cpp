#include "checkpoint/file_faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <optional>
#include <string_view>

namespace orthant::test {
namespace {

using Kind = FileFault::Kind;

// Calls come before the program's objects are made: nothing here may need a constructor then.
struct Watch {
  std::mutex mutex;
  std::string folder;
  FileFault fault;
  std::vector<FileCall> calls;
};
std::atomic<Watch*> watching{nullptr};

// What becomes of a call.
struct Verdict {
  int error = 0;  // other than 0: the call fails with it
  bool die_before = false;
  bool die_after = false;
  std::size_t bytes = 0;  // that a write takes
};

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

// A slow device or a signal may do that to these. libstdc++ opens folders by openat, which is not interrupted.
bool may_be_interrupted(std::string_view name) {
  return is_one_of(name, {"open", "creat", "write", "pwrite", "writev", "fsync", "fdatasync", "close"});
}

void limit_write(Verdict& verdict, const FileFault& fault, std::size_t wanted, std::size_t number) {
  if (fault.kind == Kind::short_writes) {
    verdict.bytes = std::min(wanted, 1 + number * 7919 % static_cast<std::size_t>(fault.bytes));
  }
  if (fault.kind != Kind::full_disk) return;
  auto left = fault.room->load();
  auto taken = std::int64_t{0};
  do {
    taken = std::min(left, static_cast<std::int64_t>(wanted));
  } while (!fault.room->compare_exchange_weak(left, left - taken));
  verdict.bytes = static_cast<std::size_t>(taken);
  if (taken == 0 && wanted > 0) verdict.error = ENOSPC;
}

Verdict judge(Watch& watch, FileCall call) {
  const std::lock_guard lock(watch.mutex);
  const auto& fault = watch.fault;
  const bool writes = is_one_of(call.name, {"write", "pwrite", "writev"});
  Verdict verdict;
  verdict.bytes = static_cast<std::size_t>(call.bytes);
  if (fault.plain_renames && call.name == "renameat2") {
    verdict.error = EINVAL;
    return verdict;
  }
  const bool interruptible = may_be_interrupted(call.name);
  watch.calls.push_back(std::move(call));
  const auto number = static_cast<std::int64_t>(watch.calls.size());
  if (writes) limit_write(verdict, fault, verdict.bytes, watch.calls.size());
  if (fault.kind == Kind::interrupted && interruptible && number % 2 == 1) verdict.error = EINTR;
  const bool here = number == fault.call;
  if (fault.kind == Kind::fail && (here || (fault.lasting && number > fault.call))) verdict.error = fault.error;
  if (!here) return verdict;
  verdict.die_before = fault.kind == Kind::die_before;
  verdict.die_after = fault.kind == Kind::die_after || fault.kind == Kind::die_halfway;
  if (fault.kind == Kind::die_halfway) verdict.bytes /= 2;
  return verdict;
}

void die() {
  ::syscall(SYS_kill, ::getpid(), SIGKILL);
}

// Where a descriptor leads to; empty when that is no file.
std::string path_of(int fd) {
  const int before = errno;
  std::array<char, 32> link{};
  std::array<char, 4200> target{};
  std::snprintf(link.data(), link.size(), "/proc/self/fd/%d", fd);
  const auto length = ::readlink(link.data(), target.data(), target.size());
  errno = before;
  return length > 0 && target[0] == '/' ? std::string(target.data(), static_cast<std::size_t>(length)) : std::string();
}

std::string path_at(int folder, const char* name) {
  if (name[0] == '/' || folder == AT_FDCWD) return name;
  return path_of(folder) + "/" + name;
}

// The watch, when there is one and the path lies in its folder.
Watch* watch_of(const std::string& path) {
  auto* const watch = watching.load();
  if (watch == nullptr || !path.starts_with(watch->folder)) return nullptr;
  return path.size() == watch->folder.size() || path[watch->folder.size()] == '/' ? watch : nullptr;
}

bool watches() {
  return watching.load() != nullptr;
}

// `real` is given the bytes to take.
template <typename Real>
long guarded(const FileCall& call, const Real& real, bool done_anyway = false) {
  auto* const watch = watch_of(call.path);
  if (watch == nullptr) return real(static_cast<std::size_t>(call.bytes));
  const auto verdict = judge(*watch, call);
  if (verdict.die_before) die();
  if (verdict.error != 0) {
    if (done_anyway) real(0);
    errno = verdict.error;
    return -1;
  }
  const auto result = real(verdict.bytes);
  if (verdict.die_after) die();
  return result;
}

long open_at(const char* call, int folder, const char* path, int flags, mode_t mode) {
  const auto real = [&](std::size_t) { return ::syscall(SYS_openat, folder, path, flags, mode); };
  if (!watches()) return real(0);
  const bool changes = (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0;
  return guarded({call, path_at(folder, path), 0, changes}, real);
}

mode_t mode_of(int flags, va_list arguments) {
  const bool given = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
  return given ? va_arg(arguments, mode_t) : 0;
}

template <typename Real>
long on_descriptor(const char* call, int fd, std::size_t bytes, const Real& real) {
  if (!watches()) return real(bytes);
  return guarded({call, path_of(fd), static_cast<std::int64_t>(bytes)}, real);
}

template <typename Real>
int on_name(const char* call, int folder, const char* path, const Real& real, const std::string& to = {}) {
  const auto plain = [&](std::size_t) { return real(); };
  return static_cast<int>(watches() ? guarded({call, path_at(folder, path), 0, true, to}, plain) : real());
}

}  // namespace

void watch_files(const std::filesystem::path& folder, FileFault fault) {
  unwatch_files();
  auto* const watch = new Watch;
  watch->folder = folder.string();
  watch->fault = fault;
  watching = watch;
}

std::vector<FileCall> watched_calls() {
  auto* const watch = watching.load();
  if (watch == nullptr) return {};
  const std::lock_guard lock(watch->mutex);
  return watch->calls;
}

void unwatch_files() {
  delete watching.exchange(nullptr);
}

}  // namespace orthant::test

// The C library's names. Each makes its system call itself, so that no other definition is asked for.
using orthant::test::on_descriptor;
using orthant::test::on_name;
using orthant::test::open_at;

extern "C" {

#define ORTHANT_OPEN(name)                                                 \
  int name(const char* path, int flags, ...) {                             \
    va_list arguments;                                                     \
    va_start(arguments, flags);                                            \
    const auto mode = orthant::test::mode_of(flags, arguments);            \
    va_end(arguments);                                                     \
    return static_cast<int>(open_at("open", AT_FDCWD, path, flags, mode)); \
  }
#define ORTHANT_OPENAT(name)                                               \
  int name(int folder, const char* path, int flags, ...) {                 \
    va_list arguments;                                                     \
    va_start(arguments, flags);                                            \
    const auto mode = orthant::test::mode_of(flags, arguments);            \
    va_end(arguments);                                                     \
    return static_cast<int>(open_at("openat", folder, path, flags, mode)); \
  }
ORTHANT_OPEN(open)
ORTHANT_OPEN(open64)
ORTHANT_OPENAT(openat)
ORTHANT_OPENAT(openat64)

int creat(const char* path, mode_t mode) {
  return static_cast<int>(open_at("creat", AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode));
}

ssize_t write(int fd, const void* data, size_t size) {
  return on_descriptor("write", fd, size, [&](size_t bytes) { return ::syscall(SYS_write, fd, data, bytes); });
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  const auto real = [&](size_t bytes) { return ::syscall(SYS_pwrite64, fd, data, bytes, offset); };
  return on_descriptor("pwrite", fd, size, real);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) {
  return pwrite(fd, data, size, offset);
}

// A part of it is a part of its first buffer that is not empty.
ssize_t writev(int fd, const iovec* parts, int count) {
  size_t size = 0;
  for (int i = 0; i < count; ++i) size += parts[i].iov_len;
  return on_descriptor("writev", fd, size, [&](size_t bytes) {
    if (bytes == size) return ::syscall(SYS_writev, fd, parts, count);
    int first = 0;
    while (first + 1 < count && parts[first].iov_len == 0) ++first;
    return ::syscall(SYS_write, fd, parts[first].iov_base, std::min(bytes, parts[first].iov_len));
  });
}

int fsync(int fd) {
  return static_cast<int>(on_descriptor("fsync", fd, 0, [&](size_t) { return ::syscall(SYS_fsync, fd); }));
}

int fdatasync(int fd) {
  return static_cast<int>(on_descriptor("fdatasync", fd, 0, [&](size_t) { return ::syscall(SYS_fdatasync, fd); }));
}

int close(int fd) {
  const auto real = [&](size_t) { return ::syscall(SYS_close, fd); };
  if (!orthant::test::watches()) return static_cast<int>(real(0));
  const bool written = (::fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
  return static_cast<int>(
      orthant::test::guarded({"close", orthant::test::path_of(fd), 0, written}, real, /*done_anyway=*/true));
}

int ftruncate(int fd, off_t bytes) noexcept {
  return static_cast<int>(
      on_descriptor("ftruncate", fd, 0, [&](size_t) { return ::syscall(SYS_ftruncate, fd, bytes); }));
}

int ftruncate64(int fd, off_t bytes) noexcept {
  return ftruncate(fd, bytes);
}

int fallocate(int fd, int mode, off_t offset, off_t bytes) {
  return static_cast<int>(
      on_descriptor("fallocate", fd, 0, [&](size_t) { return ::syscall(SYS_fallocate, fd, mode, offset, bytes); }));
}

int fallocate64(int fd, int mode, off_t offset, off_t bytes) {
  return fallocate(fd, mode, offset, bytes);
}

int truncate(const char* path, off_t bytes) noexcept {
  return on_name("truncate", AT_FDCWD, path, [&] { return ::syscall(SYS_truncate, path, bytes); });
}

int rename(const char* from, const char* to) noexcept {
  return on_name("rename", AT_FDCWD, from, [&] { return ::syscall(SYS_rename, from, to); }, to);
}

int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  return on_name(
      "renameat", from_folder, from, [&] { return ::syscall(SYS_renameat, from_folder, from, to_folder, to); }, to);
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
  return on_name(
      "renameat2", from_folder, from, [&] { return ::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags); },
      to);
}

int link(const char* from, const char* to) noexcept {
  return on_name("link", AT_FDCWD, to, [&] { return ::syscall(SYS_link, from, to); });
}

int linkat(int from_folder, const char* from, int to_folder, const char* to, int flags) noexcept {
  return on_name("linkat", to_folder, to,
                 [&] { return ::syscall(SYS_linkat, from_folder, from, to_folder, to, flags); });
}

int symlink(const char* target, const char* path) noexcept {
  return on_name("symlink", AT_FDCWD, path, [&] { return ::syscall(SYS_symlink, target, path); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return on_name("mkdir", AT_FDCWD, path, [&] { return ::syscall(SYS_mkdir, path, mode); });
}

int mkdirat(int folder, const char* path, mode_t mode) noexcept {
  return on_name("mkdirat", folder, path, [&] { return ::syscall(SYS_mkdirat, folder, path, mode); });
}

int unlink(const char* path) noexcept {
  return on_name("unlink", AT_FDCWD, path, [&] { return ::syscall(SYS_unlink, path); });
}

int unlinkat(int folder, const char* path, int flags) noexcept {
  return on_name("unlinkat", folder, path, [&] { return ::syscall(SYS_unlinkat, folder, path, flags); });
}

int rmdir(const char* path) noexcept {
  return on_name("rmdir", AT_FDCWD, path, [&] { return ::syscall(SYS_rmdir, path); });
}

int remove(const char* path) noexcept {
  return on_name("remove", AT_FDCWD, path, [&] {
    const auto result = ::syscall(SYS_unlink, path);
    return result != 0 && errno == EISDIR ? ::syscall(SYS_rmdir, path) : result;
  });
}
}
