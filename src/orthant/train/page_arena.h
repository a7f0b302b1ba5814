// Large blocks of memory that are never given back while a run goes on: fresh pages cost more than the arithmetic done
// in them (a page fault per 4 KiB). Freed pages are kept and serve any later block, whatever its size, so what is
// mapped never exceeds the largest sum of blocks that lived at once. See Note [Moved pages] in page_arena.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

namespace orthant {

// Every method may be called from any thread.
class PageArena {
 public:
  // Blocks are whole granules: 16 KiB, or a page where pages are larger.
  static std::size_t granule_bytes();

  // Moves mapped pages to another, mapped address, contents included; false when it cannot.
  using Mover = bool (*)(void* from, std::size_t bytes, void* to);

  PageArena();  // moves with mremap
  explicit PageArena(Mover mover) : mover_(mover) {}

  // Gives back everything; blocks in use must be gone.
  ~PageArena();

  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // A block that holds `bytes` and begins on a page; contents are arbitrary. Throws std::bad_alloc.
  void* allocate(std::size_t bytes);

  // `bytes` as it was allocated.
  void release(void* block, std::size_t bytes) noexcept;

  // Gives kept pages back to the system: after a phase that needed far more memory than the next one will.
  void trim() noexcept;

  struct Usage {
    std::int64_t mapped_bytes = 0;  // in use and kept
    std::int64_t kept_bytes = 0;
    std::int64_t fresh_bytes = 0;  // ever mapped anew
    std::int64_t moved_bytes = 0;  // ever moved to form a larger block
  };
  Usage usage() const;

 private:
  char* map(std::size_t bytes);
  char* take_fitting(std::size_t bytes);
  char* gather(std::size_t bytes);
  std::size_t move(char* from, std::size_t bytes, char* to);
  void keep(char* begin, std::size_t bytes);
  void drop(char* begin, std::size_t bytes);
  void unmap_kept() noexcept;

  Mover mover_;
  mutable std::mutex mutex_;
  std::map<char*, std::size_t> kept_;                     // begin -> bytes; neighbours are joined
  std::set<std::pair<std::size_t, char*>> kept_by_size_;  // the same
  Usage usage_;
};

}  // namespace orthant
