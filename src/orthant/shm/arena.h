// One rank's shared memory: a header that peers find first, a directory of what lies where, and blocks handed out by
// name or as buffers. Freed blocks are kept and reused: a fresh page costs more than the copy through it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include "orthant/shm/futex.h"
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
  std::atomic<uint32_t> num_viewers{0};  // ranks that have opened this arena, the owner included
  std::atomic<uint32_t> num_entries{0};  // entries below this are valid and never change
  Entry entries[kDirectoryEntries];
};

// A peer's arena, as seen from here.
class ArenaView {
 public:
  explicit ArenaView(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

  ArenaHeader& header() const { return *reinterpret_cast<ArenaHeader*>(mapping_->data()); }
  std::byte* at(uint64_t offset) const { return mapping_->data() + offset; }

  // Where the owner keeps the named block; null until it has published it. Never blocks.
  std::byte* find(uint64_t name_hash) const;

 protected:
  std::shared_ptr<Mapping> mapping_;
};

// This rank's own arena. Thread-safe.
class Arena : public ArenaView {
 public:
  explicit Arena(size_t bytes);

  const Mapping& mapping() const { return *mapping_; }

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
  std::map<uint64_t, uint64_t> free_;  // offset -> bytes, neighbours joined
  std::map<uint64_t, uint64_t> used_;
};

}  // namespace orthant::shm
