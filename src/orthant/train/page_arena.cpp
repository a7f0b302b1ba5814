// Note [Moved pages]
// A request takes the smallest kept range that holds it and leaves the rest. When none does, its address range is put
// together from kept ranges, largest first: mremap moves their page-table entries, which
// neither faults nor clears a page, and only what is missing is mapped anew. So nothing new is mapped while enough
// pages are kept, whatever sizes they had, and the resident memory is the peak of what lived at once. A training step
// asks for the same sizes over and over: after a few steps nearly every request is served by a range of its own size.
// Kernels before 6.17 refuse to move a range that an earlier move sewed together from several mappings; such a range is
// halved until each part lies in one. Pages that cannot be moved at all are given back, and fresh ones take their
// place.
#include "orthant/train/page_arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <new>

namespace orthant {
namespace {

bool move_pages(void* from, std::size_t bytes, void* to) {
  return mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != MAP_FAILED;
}

// What a block of `bytes` occupies; less than `bytes` when that overflows.
std::size_t rounded(std::size_t bytes) {
  const std::size_t granule = PageArena::granule_bytes();
  return (std::max<std::size_t>(bytes, 1) + granule - 1) / granule * granule;
}

}  // namespace

std::size_t PageArena::granule_bytes() {
  static const std::size_t granule = std::max<std::size_t>(16384, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
  return granule;
}

PageArena::PageArena() : mover_(move_pages) {}

PageArena::~PageArena() {
  trim();
}

void* PageArena::allocate(std::size_t bytes) {
  const std::size_t wanted = rounded(bytes);
  if (wanted < bytes) throw std::bad_alloc();
  const std::lock_guard lock(mutex_);
  if (char* fitting = take_fitting(wanted)) return fitting;
  return gather(wanted);
}

void PageArena::release(void* block, std::size_t bytes) noexcept {
  const std::lock_guard lock(mutex_);
  keep(static_cast<char*>(block), rounded(bytes));
}

void PageArena::trim() noexcept {
  const std::lock_guard lock(mutex_);
  unmap_kept();
}

PageArena::Usage PageArena::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void PageArena::unmap_kept() noexcept {
  for (const auto& [begin, bytes] : kept_) munmap(begin, bytes);
  usage_.mapped_bytes -= usage_.kept_bytes;
  usage_.kept_bytes = 0;
  kept_.clear();
  kept_by_size_.clear();
}

// Where the system counts address space, the new range and the pages about to move into it may be too much together:
// then without them.
char* PageArena::map(std::size_t bytes) {
  const auto try_map = [bytes] {
    return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  };
  void* begin = try_map();
  if (begin == MAP_FAILED) {
    unmap_kept();
    begin = try_map();
  }
  if (begin == MAP_FAILED) throw std::bad_alloc();
  return static_cast<char*>(begin);
}

char* PageArena::take_fitting(std::size_t bytes) {
  const auto found = kept_by_size_.lower_bound({bytes, nullptr});
  if (found == kept_by_size_.end()) return nullptr;
  const auto [size, begin] = *found;
  drop(begin, size);
  if (size > bytes) keep(begin + bytes, size - bytes);
  return begin;
}

char* PageArena::gather(std::size_t bytes) {
  char* block = map(bytes);
  std::size_t filled = 0;
  while (filled < bytes && !kept_by_size_.empty()) {
    const auto [size, begin] = *kept_by_size_.rbegin();
    const std::size_t taken = std::min(size, bytes - filled);
    drop(begin, size);
    if (size > taken) keep(begin + taken, size - taken);
    const std::size_t moved = move(begin, taken, block + filled);
    usage_.moved_bytes += static_cast<std::int64_t>(moved);
    usage_.fresh_bytes += static_cast<std::int64_t>(taken - moved);
    filled += taken;
  }
  usage_.fresh_bytes += static_cast<std::int64_t>(bytes - filled);
  usage_.mapped_bytes += static_cast<std::int64_t>(bytes - filled);
  return block;
}

// The bytes that were moved; the others are unmapped at `from`, and fresh pages lie at `to`.
std::size_t PageArena::move(char* from, std::size_t bytes, char* to) {
  if (mover_(from, bytes, to)) return bytes;
  if (bytes <= granule_bytes()) {
    munmap(from, bytes);
    return 0;
  }
  const std::size_t half = rounded(bytes / 2);
  const std::size_t first = move(from, half, to);
  return first + move(from + half, bytes - half, to + half);
}

void PageArena::keep(char* begin, std::size_t bytes) {
  usage_.kept_bytes += static_cast<std::int64_t>(bytes);
  auto next = kept_.lower_bound(begin);
  if (next != kept_.end() && next->first == begin + bytes) {
    bytes += next->second;
    kept_by_size_.erase({next->second, next->first});
    next = kept_.erase(next);
  }
  if (next != kept_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      bytes += before->second;
      kept_by_size_.erase({before->second, before->first});
      kept_.erase(before);
    }
  }
  kept_.emplace(begin, bytes);
  kept_by_size_.emplace(bytes, begin);
}

void PageArena::drop(char* begin, std::size_t bytes) {
  usage_.kept_bytes -= static_cast<std::int64_t>(bytes);
  kept_.erase(begin);
  kept_by_size_.erase({bytes, begin});
}

}  // namespace orthant
