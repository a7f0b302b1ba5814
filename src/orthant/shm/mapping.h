// A piece of memory that processes share: an anonymous file without a name, which disappears with the last process that
// maps it. Other processes of the same user open it through /proc, so nothing can be left behind.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace orthant::shm {

class Mapping {
 public:
  // A new piece of `bytes`, zero-filled; pages exist from their first touch on. CommError when the system refuses.
  static std::shared_ptr<Mapping> create(size_t bytes);

  // The piece that another rank described. Ranks of one process get the very same mapping. CommError when it cannot be
  // opened.
  static std::shared_ptr<Mapping> open(const std::string& description);

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }

  // What another process needs to open it while this process lives.
  std::string description() const;

  bool contains(const void* pointer, size_t count) const {
    const auto* begin = static_cast<const std::byte*>(pointer);
    return begin >= data_ && count <= bytes_ && static_cast<size_t>(begin - data_) <= bytes_ - count;
  }

 private:
  Mapping(int fd, size_t bytes);

  int fd_;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

// Names the host as far as sharing memory goes: same boot, process numbers, network and user. Containers and network
// namespaces are hosts of their own.
std::string host_identity();

// The process number in a description.
pid_t owner_of(const std::string& description);

}  // namespace orthant::shm
