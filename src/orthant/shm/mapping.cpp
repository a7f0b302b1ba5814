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
#include <sstream>
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

}  // namespace

Mapping::Mapping(int fd, size_t bytes) : fd_(fd), bytes_(bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    const std::string reason = std::strerror(errno);
    close(fd_);
    throw CommError(fmt::format("{} bytes of shared memory cannot be mapped: {}", bytes, reason),
                    {.remedy = "raise the limit on address space (ulimit -v), or use --backend gloo"});
  }
  data_ = static_cast<std::byte*>(memory);
  madvise(memory, bytes, MADV_HUGEPAGE);  // taken where the system offers it
  madvise(memory, bytes, MADV_DONTDUMP);
}

Mapping::~Mapping() {
  munmap(data_, bytes_);
  close(fd_);
}

std::shared_ptr<Mapping> Mapping::create(size_t bytes) {
  const int fd = memfd_create("orthant", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    const std::string reason = std::strerror(errno);
    if (fd >= 0) close(fd);
    throw CommError(fmt::format("{} bytes of shared memory cannot be had: {}", bytes, reason),
                    {.remedy = "use --backend gloo"});
  }
  std::shared_ptr<Mapping> mapping(new Mapping(fd, bytes));
  auto& all = open_mappings();
  std::lock_guard lock(all.mutex);
  all.by_file[file_of(fd)] = mapping;
  return mapping;
}

std::string Mapping::description() const {
  return fmt::format("{} {} {}", getpid(), fd_, bytes_);
}

std::shared_ptr<Mapping> Mapping::open(const std::string& description) {
  std::istringstream text(description);
  pid_t pid = 0;
  int their_fd = -1;
  size_t bytes = 0;
  text >> pid >> their_fd >> bytes;
  const auto path = fmt::format("/proc/{}/fd/{}", pid, their_fd);
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    throw CommError(fmt::format("shared memory of process {} cannot be opened: {}", pid, std::strerror(errno)),
                    {.remedy = "run all ranks as one user on one host, or use --backend gloo"});
  }
  auto& all = open_mappings();
  std::lock_guard lock(all.mutex);
  auto& known = all.by_file[file_of(fd)];
  if (auto mapping = known.lock()) {
    close(fd);
    return mapping;
  }
  std::shared_ptr<Mapping> mapping(new Mapping(fd, bytes));
  known = mapping;
  return mapping;
}

pid_t owner_of(const std::string& description) {
  return static_cast<pid_t>(std::stol(description));
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
