#include "orthant/shm/mapping.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <utility>

#include "orthant/base/error.h"

namespace orthant::shm {
namespace {

// Mappings of this process by file, so that ranks that are threads share addresses: no page is mapped twice, and tools
// that watch memory by address see both sides of every exchange.
struct OpenMappings {
  std::mutex mutex;
  std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Mapping>> by_file;
};

OpenMappings& open_mappings() {
  static OpenMappings mappings;
  return mappings;
}

std::pair<dev_t, ino_t> file_of(int fd) {
  struct stat status{};
  if (fstat(fd, &status) != 0) throw CommError(fmt::format("fstat of shared memory: {}", std::strerror(errno)));
  return {status.st_dev, status.st_ino};
}

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Not executable where the system knows how; older ones refuse the flag.
int sealable_memory() {
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
  const int fd = memfd_create("orthant", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : memfd_create("orthant", MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

[[noreturn]] void refuse(const std::string& whose, const std::string& why) {
  throw CommError(fmt::format("{}: {}", whose, why),
                  {.remedy = "start all ranks from one program of one release, or use --backend gloo"});
}

}  // namespace

// Takes no ownership of `fd`: the map outlives it.
Mapping::Mapping(int fd, size_t bytes) : bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    throw CommError(fmt::format("{} bytes of shared memory cannot be mapped: {}", bytes, std::strerror(errno)),
                    {.remedy = "raise the limit on address space (ulimit -v), or use --backend gloo"});
  }
  data_ = static_cast<std::byte*>(memory);
  madvise(memory, bytes, MADV_HUGEPAGE);  // taken where the system offers it
  madvise(memory, bytes, MADV_DONTDUMP);
}

Mapping::~Mapping() {
  munmap(data_, bytes_);
  if (fd_ >= 0) close(fd_);
}

std::shared_ptr<Mapping> Mapping::create(size_t bytes) {
  const int fd = sealable_memory();
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0 || fcntl(fd, F_ADD_SEALS, kSeals) != 0) {
    const int error_number = errno;
    if (fd >= 0) close(fd);
    const bool is_limited = error_number == EFBIG;  // the limit on files counts for this memory, too
    throw CommError(fmt::format("{} bytes of shared memory cannot be had: {}", bytes, std::strerror(error_number)),
                    {.remedy = is_limited ? "raise the limit on file sizes (ulimit -f), or use --backend gloo"
                                          : "use --backend gloo"});
  }
  std::shared_ptr<Mapping> mapping;
  try {
    mapping.reset(new Mapping(fd, bytes));
  } catch (...) {
    close(fd);
    throw;
  }
  mapping->fd_ = fd;
  auto& all = open_mappings();
  std::lock_guard lock(all.mutex);
  std::erase_if(all.by_file, [](const auto& entry) { return entry.second.expired(); });
  all.by_file[file_of(fd)] = mapping;
  return mapping;
}

std::shared_ptr<Mapping> Mapping::open(int fd, size_t least, size_t most, const std::string& whose) {
  const int seals = fcntl(fd, F_GET_SEALS);  // other files than shared memory have none
  if (seals < 0) refuse(whose, "what it handed over is no shared memory");
  if ((seals & kSeals) != kSeals) refuse(whose, "its shared memory is not sealed: it could be cut short");
  struct stat status{};
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) refuse(whose, "what it handed over is no shared memory");
  const auto bytes = static_cast<size_t>(status.st_size);
  if (bytes < least || bytes > most) {
    refuse(whose, fmt::format("its shared memory has {} bytes, {} to {} fit", bytes, least, most));
  }
  auto& all = open_mappings();
  std::lock_guard lock(all.mutex);
  auto& known = all.by_file[{status.st_dev, status.st_ino}];
  if (auto mapping = known.lock()) return mapping;
  std::shared_ptr<Mapping> mapping(new Mapping(fd, bytes));
  known = mapping;
  return mapping;
}

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  std::error_code error;
  const auto processes = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  const auto network = std::filesystem::read_symlink("/proc/self/ns/net", error);
  return fmt::format("{} {} {} {}", boot, processes.string(), network.string(), getuid());
}

}  // namespace orthant::shm
