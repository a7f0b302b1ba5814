// A shuffle of [0, n) that needs no memory and can be entered anywhere: the order of the samples of an epoch is the
// same for every rank, for any number of ranks, and after any restart.
#pragma once

#include <array>
#include <cstdint>

namespace orthant {

// A bijection of [0, size) keyed by (seed, epoch): a Feistel network over the next power of two, repeated until inside.
class Permutation {
 public:
  // Throws InternalError for size 0.
  Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch);

  // The place that `index` is sent to. Throws InternalError for an index outside [0, size).
  std::uint64_t operator()(std::uint64_t index) const;

  std::uint64_t size() const { return size_; }

 private:
  std::uint64_t shuffled_once(std::uint64_t value) const;

  std::uint64_t size_;
  int low_bits_;  // of the low half; it has as many bits as the high half, or one more
  int high_bits_;
  std::array<std::uint64_t, 8> round_keys_;
};

}  // namespace orthant
