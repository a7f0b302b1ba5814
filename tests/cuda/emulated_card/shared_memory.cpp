#include "cuda/emulated_card/shared_memory.h"

#include <fmt/format.h>

#include <cstring>

#include "cuda/emulated_card/block.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif
#endif
#ifndef ASAN_POISON_MEMORY_REGION
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace emulated_card {
namespace {

// Dynamic memory begins behind a gap, so that what runs over the static variables' end does not meet it.
constexpr unsigned kDynamicAt = 64 << 10;

alignas(1024) unsigned char memory[kDynamicAt + kDynamicBytes];
unsigned static_bytes = 0;  // that variables of any kernel so far take
unsigned dynamic_bytes = 0;

}  // namespace

void clear_shared(unsigned bytes) {
  dynamic_bytes = bytes;
  ASAN_UNPOISON_MEMORY_REGION(memory, sizeof memory);
  std::memset(memory, 0xff, static_bytes);
  std::memset(memory + kDynamicAt, 0xff, bytes);
  ASAN_POISON_MEMORY_REGION(memory + kStaticBytes, kDynamicAt - kStaticBytes);
  ASAN_POISON_MEMORY_REGION(memory + kDynamicAt + bytes, kDynamicBytes - bytes);
}

}  // namespace emulated_card

using emulated_card::Block;
using emulated_card::kDynamicAt;
using emulated_card::memory;

extern "C" {

unsigned char* emulated_static_shared(unsigned place, unsigned bytes) {
  using emulated_card::static_bytes;
  if (place + bytes > static_bytes) {
    if (place + bytes > emulated_card::kStaticBytes) {
      Block::running().fail(fmt::format("static variables take more than {} bytes", emulated_card::kStaticBytes));
    }
    std::memset(memory + static_bytes, 0xff, place + bytes - static_bytes);
    static_bytes = place + bytes;
  }
  return memory + place;
}
unsigned char* emulated_dynamic_shared() {
  return memory + kDynamicAt;
}
unsigned emulated_shared_address(const void* pointer) {
  return static_cast<unsigned>(static_cast<const unsigned char*>(pointer) - memory);
}
unsigned char* emulated_checked_shared(const char* what, unsigned address, unsigned bytes) {
  if (address < kDynamicAt || address + bytes > kDynamicAt + emulated_card::dynamic_bytes) {
    Block::running().fail(fmt::format("{} of {} bytes at {} of {} bytes of shared memory", what, bytes,
                                      static_cast<long>(address) - kDynamicAt, emulated_card::dynamic_bytes));
  }
  if (address % bytes != 0) {
    Block::running().fail(fmt::format("{} at {}, not a multiple of {}", what, address - kDynamicAt, bytes));
  }
  return memory + address;
}
}
