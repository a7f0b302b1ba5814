// A piece of memory that processes share: an anonymous file without a name, which disappears with the last process that
// maps it. Its size is sealed, so no peer can take pages away from under a reader; a descriptor that comes from a peer
// is mapped only when it is such a file of a fitting size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace orthant::shm {

class Mapping {
 public:
  // A new piece of `bytes`, zero-filled; pages exist from their first touch on. CommError when the system refuses.
  static std::shared_ptr<Mapping> create(size_t bytes);

  // The piece behind a peer's descriptor, which stays the caller's. Ranks of one process get the very same mapping.
  // CommError, which begins with `whose`, for anything but a sealed piece of `least` to `most` bytes.
  static std::shared_ptr<Mapping> open(int fd, size_t least, size_t most, const std::string& whose);

  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping();

  std::byte* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  // To be handed to peers; -1 for a piece of another process.
  int fd() const { return fd_; }

  bool contains(const void* pointer, size_t count) const {
    const auto* begin = static_cast<const std::byte*>(pointer);
    return begin >= data_ && count <= bytes_ && static_cast<size_t>(begin - data_) <= bytes_ - count;
  }
  // Whether `count` bytes at this offset lie inside.
  bool holds(uint64_t offset, uint64_t count) const { return count <= bytes_ && offset <= bytes_ - count; }

 private:
  Mapping(int fd, size_t bytes);

  int fd_ = -1;
  size_t bytes_;
  std::byte* data_ = nullptr;
};

// Names the host as far as sharing memory goes: same boot, process numbers, network and user. Containers and network
// namespaces are hosts of their own.
std::string host_identity();

}  // namespace orthant::shm
