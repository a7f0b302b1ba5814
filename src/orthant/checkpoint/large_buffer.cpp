#include "orthant/checkpoint/large_buffer.h"

#include <ATen/ATen.h>
#include <sys/mman.h>

#include <new>

namespace orthant {
namespace {

// Below this the allocator's own memory is as good.
constexpr std::size_t kLargeBytes = std::size_t{1} << 20;

}  // namespace

at::Tensor make_large_buffer(std::int64_t elements, at::ScalarType type) {
  const auto options = at::TensorOptions().dtype(type);
  const auto bytes = static_cast<std::size_t>(elements) * c10::elementSize(type);
  if (bytes < kLargeBytes) return at::zeros({elements}, options);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return at::from_blob(memory, {elements}, [bytes](void* block) { munmap(block, bytes); }, options);
}

}  // namespace orthant
