// One rank's shared memory: a header that peers find first, a directory of what lies where, and blocks handed out by
// name or as buffers. Freed blocks are kept and reused: a fresh page costs more than the copy through it.
//
// Note [Numbers in shared memory]
// All members of a job write to each other's memory, so a number read from there is a claim, not a fact: each is read
// once, into a local, and an offset or a length is compared with the mapping before anything is done at it. One that
// does not fit is the failure of the rank whose memory it is. What a rank must rely on, how much it has posted and what
// lies where in its own arena, it keeps in memory of its own and never reads back.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include "orthant/shm/futex.h"
#include "orthant/shm/line.h"
#include "orthant/shm/mapping.h"

namespace orthant::shm {

inline constexpr size_t kAlignment = 64;
inline constexpr size_t kDirectoryEntries = 4096;

// At the start of every arena. Written by its owner, but for the doorbell, which peers ring.
struct ArenaHeader {
  struct Entry {
    uint64_t name_hash;
    uint64_t offset;
  };

  Doorbell doorbell;
  std::atomic<uint64_t> left_at{0};      // clock when the owner left and made no more calls; 0: it has not said so
  std::atomic<uint32_t> num_entries{0};  // entries below this are valid and never change
  Entry entries[kDirectoryEntries];
};

// The number as it is now, read exactly once however often the result is used.
inline uint64_t read_once(const uint64_t& shared) {
  return *static_cast<const volatile uint64_t*>(&shared);
}

// The arena of the rank `owner`, as seen from here.
class ArenaView {
 public:
  // The mapping has room for a header.
  ArenaView(std::shared_ptr<Mapping> mapping, int owner) : mapping_(std::move(mapping)), owner_(owner) {}

  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(mapping_->data()); }

  // The `bytes` at an offset that the owner named. PeerFailure when they are not inside.
  std::byte* at(uint64_t offset, uint64_t bytes) const {
    if (!mapping_->holds(offset, bytes)) outside(offset, bytes);
    return mapping_->data() + offset;
  }

  // Where the owner keeps the named block of so many bytes; null until it has published it. Never blocks. PeerFailure
  // as above.
  std::byte* find(uint64_t name_hash, uint64_t bytes) const;

 protected:
  [[noreturn]] void outside(uint64_t offset, uint64_t bytes) const;

  std::shared_ptr<Mapping> mapping_;
  int owner_;
};

// This rank's own arena. Thread-safe.
class Arena : public ArenaView {
 public:
  Arena(size_t bytes, int owner);

  const Mapping& mapping() const { return *mapping_; }
  std::shared_ptr<Mapping> shared_mapping() const { return mapping_; }

  // A header made in place and `bytes` behind it, found by peers under the name. Published once, for good.
  template <class Header>
  Header* publish(std::string_view name, size_t bytes) {
    auto* header = new (allocate(sizeof(Header) + bytes)) Header{};
    enter(name, offset_of(header));
    return header;
  }

  // A block aligned to 64 bytes (to pages when large), not cleared. CommError when the arena is full.
  std::byte* allocate(size_t bytes);
  void release(std::byte* block);

  uint64_t offset_of(const void* pointer) const {
    return static_cast<uint64_t>(static_cast<const std::byte*>(pointer) - mapping_->data());
  }

 private:
  void enter(std::string_view name, uint64_t offset);

  std::mutex mutex_;
  uint32_t num_entries_ = 0;
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes, neighbours joined
  std::map<uint64_t, uint64_t> used_;
};

}  // namespace orthant::shm
