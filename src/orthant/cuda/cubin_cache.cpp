#include "orthant/cuda/cubin_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <span>
#include <string_view>
#include <thread>

#include "orthant/base/error.h"
#include "orthant/files/file_handle.h"
#include "orthant/files/whole_file.h"
#include "orthant/files/xxhash.h"

namespace orthant::cuda {
namespace {

constexpr std::string_view kHead = "orthant cubin 1";
constexpr std::int64_t kMaxBytes = std::int64_t{64} << 20;
// After this the holder of the lock is presumed stuck, and whoever waits compiles for itself.
constexpr auto kPatience = std::chrono::seconds(60);

std::string hash_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return hash_text(xxh64(bytes)) + hash_text(xxh64(bytes, 1));
}

std::string file_text(const std::string& key, const std::string& code) {
  return fmt::format("{}\n{}\n{}\n{}", kHead, hash_of(key), hash_of(code), code);
}

// Nothing when the file is absent, damaged, somebody else's or made from something else.
std::optional<std::string> read_code(const std::filesystem::path& path, const std::string& key) {
  struct stat facts{};
  if (::lstat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid()) return std::nullopt;
  try {
    const std::string text = read_file(path, kMaxBytes);
    const std::string head = fmt::format("{}\n{}\n", kHead, hash_of(key));
    const std::size_t hash_size = hash_of("").size();
    if (!text.starts_with(head) || text.size() <= head.size() + hash_size + 1) return std::nullopt;
    std::string code = text.substr(head.size() + hash_size + 1);
    if (text.substr(head.size(), hash_size) != hash_of(code)) return std::nullopt;
    return code;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

// Held by the process that makes a file. Whoever cannot have one goes on without.
class MakersLock {
 public:
  explicit MakersLock(const std::filesystem::path& path)
      : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    // A file system without locks is none to wait for.
    while (fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR) &&
           std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  ~MakersLock() {
    if (fd_ >= 0) ::close(fd_);
  }
  MakersLock(const MakersLock&) = delete;
  MakersLock& operator=(const MakersLock&) = delete;

 private:
  int fd_;
};

}  // namespace

std::string CubinCache::get(const std::string& key, const std::function<std::string()>& make) const {
  if (folder_.empty()) return make();
  const auto path = folder_ / (hash_of(key) + ".cubin");
  if (auto code = read_code(path, key)) return *code;
  std::error_code ignored;
  if (std::filesystem::create_directories(folder_, ignored)) {
    std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
  }
  const MakersLock lock(folder_ / (hash_of(key) + ".lock"));
  if (auto code = read_code(path, key)) return *code;
  std::string code = make();
  try {
    write_file_atomically(path, file_text(key, code));
  } catch (const DataError&) {
    // A full or read-only disk: the next start compiles again.
  }
  return code;
}

}  // namespace orthant::cuda
