// A file system that fails, for any program: preloaded (LD_PRELOAD), it stands before the C library's calls on files
// below one folder, counts them over all processes of a job, and lets chosen ones fail. Set by the environment:
//   FAULT_ROOT     the folder, absolute
//   FAULT_COUNTER  a file of 16 bytes: the number of calls so far; whether the kill has happened
//   FAULT_AT       the call that fails, counted from 1; 0: none
//   FAULT_ERRNO    what it fails with
//   FAULT_LASTING  0: that call alone; 1: every call from there on; 2: from there on every call on the same path; 3: none:
//                  the process dies before that call
//   FAULT_KILL_AT  a process that writes the n-th time to metrics.jsonl dies, once in the job; 0: none
//   FAULT_LOG      a file that gets a line "NUMBER CALL PATH" for each call
// A close that fails closes all the same.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

struct shared {
  atomic_long calls;
  atomic_int killed;
  atomic_int broken;
};

static const char* root;
static size_t root_length;
static struct shared* state;
static long fail_at, kill_at;
static int fail_with, lasting, log_fd = -1;
static char broken_path[4200];
static long metrics_writes;

static long number_in(const char* name) {
  const char* text = getenv(name);
  return text ? atol(text) : 0;
}

// Also called by fork_server.cpp, with the environment of the program that begins.
__attribute__((constructor)) void on_program_start(void) {
  const char* counter = getenv("FAULT_COUNTER");
  const char* log = getenv("FAULT_LOG");
  const char* folder = getenv("FAULT_ROOT");
  if (!counter || !folder) return;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, counter, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return;
  void* memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  syscall(SYS_close, fd);
  if (memory == MAP_FAILED) return;
  state = memory;
  fail_at = number_in("FAULT_AT");
  fail_with = (int)number_in("FAULT_ERRNO");
  lasting = (int)number_in("FAULT_LASTING");
  kill_at = number_in("FAULT_KILL_AT");
  if (log) log_fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  root_length = strlen(folder);
  root = folder;
}

static int is_below(const char* path) {
  return strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

// Where a descriptor leads to; 0 when that is not below the root.
static int path_of(int fd, char* out, size_t size) {
  char link[40];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  long length = syscall(SYS_readlink, link, out, size - 1);
  if (length <= 0) return 0;
  out[length] = 0;
  return is_below(out);
}

static int path_at(int folder, const char* name, char* out, size_t size) {
  if (name == NULL) return 0;
  if (name[0] == '/') {
    snprintf(out, size, "%s", name);
    return is_below(out);
  }
  if (folder == AT_FDCWD) {
    if (syscall(SYS_getcwd, out, size) <= 0) return 0;
  } else {
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    long length = syscall(SYS_readlink, link, out, size - 1);
    if (length <= 0) return 0;
    out[length] = 0;
  }
  size_t length = strlen(out);
  snprintf(out + length, size - length, "/%s", name);
  return is_below(out);
}

// Counts the call; whether it fails, with errno set.
static int fails(const char* call, const char* path) {
  long number = atomic_fetch_add(&state->calls, 1) + 1;
  if (log_fd >= 0) {
    char line[4400];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
    syscall(SYS_write, log_fd, line, (size_t)length);
  }
  if (fail_at == 0 || number < fail_at) return 0;
  if (number == fail_at) snprintf(broken_path, sizeof broken_path, "%s", path);
  if (number == fail_at && lasting == 3) syscall(SYS_kill, getpid(), SIGKILL);
  if (number > fail_at && (lasting == 0 || lasting == 3)) return 0;
  if (number > fail_at && lasting == 2 && strcmp(path, broken_path) != 0) return 0;
  errno = fail_with;
  return 1;
}

#define BELOW_AT(folder, name) char path_[4200]; int before_ = errno; int mine_ = root && path_at(folder, name, path_, sizeof path_); errno = before_
#define BELOW_FD(fd) char path_[4200]; int before_ = errno; int mine_ = root && path_of(fd, path_, sizeof path_); errno = before_
#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

static int open_at(int folder, const char* name, int flags, mode_t mode) {
  BELOW_AT(folder, name);
  if (mine_ && fails("open", path_)) return -1;
  return (int)syscall(SYS_openat, folder, name, flags, mode);
}

#define MODE(flags) mode_t mode = 0; if ((flags) & (O_CREAT | O_TMPFILE)) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }
int open(const char* name, int flags, ...) { MODE(flags); return open_at(AT_FDCWD, name, flags, mode); }
int open64(const char* name, int flags, ...) { MODE(flags); return open_at(AT_FDCWD, name, flags, mode); }
int openat(int folder, const char* name, int flags, ...) { MODE(flags); return open_at(folder, name, flags, mode); }
int openat64(int folder, const char* name, int flags, ...) { MODE(flags); return open_at(folder, name, flags, mode); }
int creat(const char* name, mode_t mode) { return open_at(AT_FDCWD, name, O_CREAT | O_WRONLY | O_TRUNC, mode); }

FILE* fopen(const char* name, const char* how) {
  REAL(FILE*, "fopen", const char*, const char*);
  BELOW_AT(AT_FDCWD, name);
  return mine_ && fails("fopen", path_) ? NULL : real(name, how);
}
FILE* fopen64(const char* name, const char* how) { return fopen(name, how); }

DIR* opendir(const char* name) {
  REAL(DIR*, "opendir", const char*);
  BELOW_AT(AT_FDCWD, name);
  return mine_ && fails("opendir", path_) ? NULL : real(name);
}
DIR* fdopendir(int fd) {
  REAL(DIR*, "fdopendir", int);
  BELOW_FD(fd);
  return mine_ && fails("fdopendir", path_) ? NULL : real(fd);
}
struct dirent* readdir(DIR* folder) {
  REAL(struct dirent*, "readdir", DIR*);
  BELOW_FD(dirfd(folder));
  return mine_ && fails("readdir", path_) ? NULL : real(folder);
}
struct dirent64* readdir64(DIR* folder) {
  REAL(struct dirent64*, "readdir64", DIR*);
  BELOW_FD(dirfd(folder));
  return mine_ && fails("readdir", path_) ? NULL : real(folder);
}

static int stat_at(int folder, const char* name, void* out, int flags) {
  if (name && name[0] == 0 && (flags & AT_EMPTY_PATH)) {
    BELOW_FD(folder);
    if (mine_ && fails("fstat", path_)) return -1;
  } else {
    BELOW_AT(folder, name);
    if (mine_ && fails("stat", path_)) return -1;
  }
  return (int)syscall(SYS_newfstatat, folder, name, out, flags);
}
int stat(const char* name, struct stat* out) { return stat_at(AT_FDCWD, name, out, 0); }
int stat64(const char* name, struct stat64* out) { return stat_at(AT_FDCWD, name, out, 0); }
int lstat(const char* name, struct stat* out) { return stat_at(AT_FDCWD, name, out, AT_SYMLINK_NOFOLLOW); }
int lstat64(const char* name, struct stat64* out) { return stat_at(AT_FDCWD, name, out, AT_SYMLINK_NOFOLLOW); }
int fstatat(int folder, const char* name, struct stat* out, int flags) { return stat_at(folder, name, out, flags); }
int fstatat64(int folder, const char* name, struct stat64* out, int flags) { return stat_at(folder, name, out, flags); }
static int stat_fd(int fd, void* out) {
  BELOW_FD(fd);
  return mine_ && fails("fstat", path_) ? -1 : (int)syscall(SYS_fstat, fd, out);
}
int fstat(int fd, struct stat* out) { return stat_fd(fd, out); }
int fstat64(int fd, struct stat64* out) { return stat_fd(fd, out); }
int access(const char* name, int mode) {
  BELOW_AT(AT_FDCWD, name);
  return mine_ && fails("access", path_) ? -1 : (int)syscall(SYS_faccessat, AT_FDCWD, name, mode);
}
int statvfs(const char* name, struct statvfs* out) {
  REAL(int, "statvfs", const char*, struct statvfs*);
  BELOW_AT(AT_FDCWD, name);
  return mine_ && fails("statvfs", path_) ? -1 : real(name, out);
}
int statvfs64(const char* name, struct statvfs64* out) { return statvfs(name, (struct statvfs*)out); }

ssize_t read(int fd, void* out, size_t size) {
  BELOW_FD(fd);
  return mine_ && fails("read", path_) ? -1 : syscall(SYS_read, fd, out, size);
}
ssize_t pread(int fd, void* out, size_t size, off_t offset) {
  BELOW_FD(fd);
  return mine_ && fails("pread", path_) ? -1 : syscall(SYS_pread64, fd, out, size, offset);
}
ssize_t pread64(int fd, void* out, size_t size, off_t offset) { return pread(fd, out, size, offset); }

// A write that fails has written a half: the worst that a device does.
ssize_t write(int fd, const void* data, size_t size) {
  BELOW_FD(fd);
  if (mine_) {
    const char* name = strrchr(path_, '/');
    if (kill_at > 0 && name && strcmp(name, "/metrics.jsonl") == 0 && ++metrics_writes == kill_at &&
        atomic_exchange(&state->killed, 1) == 0)
      syscall(SYS_kill, getpid(), SIGKILL);
    if (fails("write", path_)) {
      int reason = errno;
      if (reason == ENOSPC) syscall(SYS_write, fd, data, size / 2);
      errno = reason;
      return -1;
    }
  }
  return syscall(SYS_write, fd, data, size);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  BELOW_FD(fd);
  return mine_ && fails("pwrite", path_) ? -1 : syscall(SYS_pwrite64, fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }
int ftruncate(int fd, off_t size) {
  BELOW_FD(fd);
  return mine_ && fails("ftruncate", path_) ? -1 : (int)syscall(SYS_ftruncate, fd, size);
}
int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }
int fsync(int fd) {
  BELOW_FD(fd);
  return mine_ && fails("fsync", path_) ? -1 : (int)syscall(SYS_fsync, fd);
}
int fdatasync(int fd) {
  BELOW_FD(fd);
  return mine_ && fails("fdatasync", path_) ? -1 : (int)syscall(SYS_fdatasync, fd);
}
int flock(int fd, int how) {
  BELOW_FD(fd);
  return mine_ && fails("flock", path_) ? -1 : (int)syscall(SYS_flock, fd, how);
}
int close(int fd) {
  BELOW_FD(fd);
  int failed = mine_ && fails("close", path_);
  int reason = errno;
  long result = syscall(SYS_close, fd);
  if (!failed) return (int)result;
  errno = reason;
  return -1;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to, unsigned flags) {
  BELOW_AT(from_folder, from);
  return mine_ && fails("rename", path_) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, flags);
}
int rename(const char* from, const char* to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_folder, const char* from, int to_folder, const char* to) { return renameat2(from_folder, from, to_folder, to, 0); }
int unlinkat(int folder, const char* name, int flags) {
  BELOW_AT(folder, name);
  return mine_ && fails("unlink", path_) ? -1 : (int)syscall(SYS_unlinkat, folder, name, flags);
}
int unlink(const char* name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char* name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }
int remove(const char* name) {
  int result = unlinkat(AT_FDCWD, name, 0);
  return result != 0 && errno == EISDIR ? unlinkat(AT_FDCWD, name, AT_REMOVEDIR) : result;
}
int mkdirat(int folder, const char* name, mode_t mode) {
  BELOW_AT(folder, name);
  return mine_ && fails("mkdir", path_) ? -1 : (int)syscall(SYS_mkdirat, folder, name, mode);
}
int mkdir(const char* name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
int link(const char* from, const char* to) {
  BELOW_AT(AT_FDCWD, to);
  return mine_ && fails("link", path_) ? -1 : (int)syscall(SYS_link, from, to);
}
