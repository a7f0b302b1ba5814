// Note [Weights hash]
// mix() is the finalizer of splitmix64 (Steele et al., 2014), a bijection of 64 bits in which every input bit reaches
// every output bit. An element's hash is mix(mix(key + index x odd) + bits) with key = mix(FNV-1a of the name): names,
// indices and values each pass through it before they meet, so that swapped elements, shifted tensors or exchanged
// parameters do not cancel in the sum. Iterations are independent: wide vectors are used where the build allows them.
// The definition never changes: hashes of old runs keep their meaning.
#include "orthant/train/weights_hash.h"

#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "orthant/base/error.h"
#include "orthant/base/stable_hash.h"

namespace orthant {
namespace {

constexpr std::uint64_t mix(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

constexpr std::uint64_t kIndexStep = 0x9e3779b97f4a7c15;

// Sum over a run of elements that are neighbours in the global tensor.
template <typename Bits>
std::uint64_t run_hash(std::uint64_t key, const char* data, std::uint64_t first_index, std::int64_t count) {
  std::uint64_t sum = 0;
  const std::uint64_t start = key + first_index * kIndexStep;
#if defined(__clang__) && !defined(__AVX2__)
#pragma clang loop vectorize(disable)  // SSE2 has no 64-bit product: its vectors take 2.5 times as long as plain code
#endif
  for (std::int64_t i = 0; i < count; ++i) {
    Bits bits;
    std::memcpy(&bits, data + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
    sum += mix(mix(start + static_cast<std::uint64_t>(i) * kIndexStep) + bits);
  }
  return sum;
}

[[noreturn]] void refuse(std::string_view name, std::int64_t num_elements, const TensorBox& box, std::int64_t first) {
  throw InternalError(fmt::format(
      "weights hash of {}: {} elements from {} on do not fit the box at [{}] of lengths [{}] in a tensor of shape [{}]",
      name, num_elements, first, fmt::join(box.offsets, ", "), fmt::join(box.lengths, ", "),
      fmt::join(box.global_shape, ", ")));
}

void check(std::string_view name, std::int64_t num_elements, const TensorBox& box, std::int64_t first) {
  const std::size_t dims = box.global_shape.size();
  bool valid = box.offsets.size() == dims && box.lengths.size() == dims && first >= 0;
  std::int64_t inside = 1;
  for (std::size_t d = 0; valid && d < dims; ++d) {
    valid = box.offsets[d] >= 0 && box.lengths[d] >= 0 && box.offsets[d] <= box.global_shape[d] - box.lengths[d] &&
            !__builtin_mul_overflow(inside, box.lengths[d], &inside);
  }
  if (!valid || first > inside - num_elements) refuse(name, num_elements, box, first);
}

// The index in the global tensor of element `place` of the box, and how many from there on are neighbours in both.
struct Run {
  std::uint64_t index = 0;
  std::int64_t length = 1;
};

Run run_at(const TensorBox& box, std::int64_t place) {
  Run run;
  std::int64_t left = place;
  std::uint64_t stride = 1;
  std::int64_t before = 0;  // elements of the run that lie before `place`
  bool whole = true;        // all dims further in are whole
  for (std::size_t d = box.lengths.size(); d-- > 0;) {
    const std::int64_t position = left % box.lengths[d];
    left /= box.lengths[d];
    run.index += stride * static_cast<std::uint64_t>(box.offsets[d] + position);
    stride *= static_cast<std::uint64_t>(box.global_shape[d]);
    if (whole) {
      before += run.length * position;
      run.length *= box.lengths[d];
      whole = box.lengths[d] == box.global_shape[d];
    }
  }
  run.length -= before;
  return run;
}

template <typename Bits>
std::uint64_t piece_hash(std::uint64_t key, const void* data, std::int64_t count, const TensorBox& box,
                         std::int64_t first) {
  const auto* bytes = static_cast<const char*>(data);
  std::uint64_t sum = 0;
  for (std::int64_t done = 0; done < count;) {
    const Run run = run_at(box, first + done);
    const std::int64_t taken = std::min(run.length, count - done);
    sum += run_hash<Bits>(key, bytes + done * static_cast<std::int64_t>(sizeof(Bits)), run.index, taken);
    done += taken;
  }
  return sum;
}

std::uint64_t name_key(std::string_view name) {
  return mix(stable_hash(name));
}

}  // namespace

std::uint64_t partial_weights_hash(std::string_view name, const at::Tensor& piece, const TensorBox& box,
                                   std::int64_t first) {
  const at::Tensor values = piece.detach().to(at::kCPU).contiguous();
  const std::int64_t count = values.numel();
  check(name, count, box, first);
  const std::uint64_t key = name_key(name);
  const void* data = values.const_data_ptr();
  switch (values.element_size()) {
    case 1:
      return piece_hash<std::uint8_t>(key, data, count, box, first);
    case 2:
      return piece_hash<std::uint16_t>(key, data, count, box, first);
    case 4:
      return piece_hash<std::uint32_t>(key, data, count, box, first);
    case 8:
      return piece_hash<std::uint64_t>(key, data, count, box, first);
    default:
      throw InternalError(
          fmt::format("weights hash of {}: elements of {} bytes have no hash", name, values.element_size()));
  }
}

std::uint64_t element_hash(std::string_view name, std::uint64_t index, std::uint64_t bits) {
  return mix(mix(name_key(name) + index * kIndexStep) + bits);
}

std::string weights_hash_text(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

}  // namespace orthant
