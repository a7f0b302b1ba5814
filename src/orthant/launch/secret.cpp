#include "orthant/launch/secret.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "orthant/base/error.h"

namespace orthant::launch {
namespace {

constexpr std::size_t kMarkBytes = 64;  // before the secret; the first one says that the pages are not wiped
constexpr std::size_t kMappedBytes = 2 * Secret::kMostBytes;

}  // namespace

Secret::Secret(std::size_t size) : size_(size) {
  if (size > kMostBytes) throw InternalError(fmt::format("a secret of {} bytes", size));
  void* pages = mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED || madvise(pages, kMappedBytes, MADV_DONTDUMP) != 0 ||
      madvise(pages, kMappedBytes, MADV_WIPEONFORK) != 0) {
    const int error = errno;
    if (pages != MAP_FAILED) munmap(pages, kMappedBytes);
    throw ConfigError(fmt::format("no memory that keeps the job token out of core dumps: {}", std::strerror(error)),
                      {.remedy = "use Linux 4.14 or newer, and free some memory"});
  }
  mlock(pages, kMappedBytes);  // keeps it off the swap space where the limits allow it
  pages_ = static_cast<std::byte*>(pages);
  pages_[0] = std::byte{1};
}

Secret::~Secret() {
  explicit_bzero(pages_, kMappedBytes);
  munmap(pages_, kMappedBytes);
}

void Secret::check_is_here() const {
  if (pages_[0] != std::byte{1}) throw InternalError("a secret is used in a process that was forked from its owner");
}

std::span<std::byte> Secret::bytes() {
  check_is_here();
  return {pages_ + kMarkBytes, size_};
}

std::span<const std::byte> Secret::bytes() const {
  check_is_here();
  return {pages_ + kMarkBytes, size_};
}

std::string_view Secret::text() const {
  const auto all = bytes();
  return {reinterpret_cast<const char*>(all.data()), all.size()};
}

void Secret::shorten(std::size_t size) {
  if (size >= size_) return;
  explicit_bzero(pages_ + kMarkBytes + size, size_ - size);
  size_ = size;
}

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const auto got = getrandom(bytes.data(), bytes.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw ConfigError(fmt::format("the system gives no random bytes: {}", std::strerror(errno)));
    bytes = bytes.subspan(static_cast<std::size_t>(got));
  }
}

std::shared_ptr<const Secret> take_variable(const char* name) {
  std::shared_ptr<Secret> secret;
  const auto length = std::strlen(name);
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, name, length) != 0 || (*entry)[length] != '=') continue;
    char* value = *entry + length + 1;
    const auto size = std::strlen(value);
    if (!secret && size > 0) {
      secret = std::make_shared<Secret>(std::min(size, Secret::kMostBytes));
      std::memcpy(secret->bytes().data(), value, secret->bytes().size());
    }
    explicit_bzero(value, size);
  }
  unsetenv(name);
  return secret;
}

}  // namespace orthant::launch
