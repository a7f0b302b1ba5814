#include "orthant/shm/arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"

namespace orthant::shm {
namespace {

constexpr size_t kPage = 4096;

uint64_t rounded_up(uint64_t value, uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

std::byte* ArenaView::find(uint64_t hash, uint64_t bytes) const {
  const auto count = header().num_entries.load(std::memory_order_acquire);
  if (count > kDirectoryEntries) {
    throw PeerFailure(owner_, fmt::format("the shared memory of rank {} is damaged: {} directory entries, {} fit",
                                          owner_, count, kDirectoryEntries));
  }
  for (uint32_t i = 0; i < count; ++i) {
    const auto& entry = header().entries[i];
    if (read_once(entry.name_hash) != hash) continue;
    const auto offset = read_once(entry.offset);
    if (offset % kAlignment != 0) outside(offset, bytes);
    return at(offset, bytes);
  }
  return nullptr;
}

void ArenaView::outside(uint64_t offset, uint64_t bytes) const {
  throw PeerFailure(owner_, fmt::format("the shared memory of rank {} is damaged: {} bytes at offset {} of {}", owner_,
                                        bytes, offset, mapping_->bytes()));
}

Arena::Arena(size_t bytes, int owner)
    : ArenaView(Mapping::create(rounded_up(bytes + sizeof(ArenaHeader), kPage)), owner) {
  new (mapping_->data()) ArenaHeader;
  const auto begin = rounded_up(sizeof(ArenaHeader), kPage);
  free_[begin] = mapping_->bytes() - begin;
}

void Arena::enter(std::string_view name, uint64_t offset) {
  std::lock_guard lock(mutex_);
  if (num_entries_ == kDirectoryEntries)
    throw InternalError("too many shared-memory channels", {.remedy = "make fewer groups"});
  header().entries[num_entries_++] = {stable_hash(name), offset};
  header().num_entries.store(num_entries_, std::memory_order_release);
}

std::byte* Arena::allocate(size_t bytes) {
  const uint64_t alignment = bytes >= 16 * kPage ? kPage : kAlignment;
  const uint64_t size = rounded_up(std::max<size_t>(bytes, 1), alignment);
  std::lock_guard lock(mutex_);
  for (auto range = free_.begin(); range != free_.end(); ++range) {
    const uint64_t begin = rounded_up(range->first, alignment);
    const uint64_t end = range->first + range->second;
    if (begin + size > end) continue;
    const uint64_t before = range->first;
    free_.erase(range);
    if (begin > before) free_[before] = begin - before;
    if (end > begin + size) free_[begin + size] = end - begin - size;
    used_[begin] = size;
    return mapping_->data() + begin;
  }
  const auto text =
      fmt::format("no room for {} bytes in the shared memory of this rank ({} bytes)", bytes, mapping_->bytes());
  if (bytes <= mapping_->bytes()) throw CommError(text, {.remedy = "use less memory per rank, or --backend gloo"});
  throw DataError(
      text + ": out of memory",
      {.remedy = "use less memory per rank: a smaller model or train.global_batch_size, or more fsdp, tp or "
                 "pp ranks (orthant estimate prints the bytes)"});
}

void Arena::release(std::byte* block) {
  std::lock_guard lock(mutex_);
  const auto used = used_.find(offset_of(block));
  if (used == used_.end()) throw InternalError("a shared-memory block was released twice or never handed out");
  auto [begin, bytes] = *used;
  used_.erase(used);
  const auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == begin + bytes) {
    bytes += next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(begin);
  if (after != free_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == begin) {
      previous->second += bytes;
      return;
    }
  }
  free_[begin] = bytes;
}

}  // namespace orthant::shm
