#include "orthant/base/permutation.h"

#include <fmt/format.h>

#include <bit>

#include "orthant/base/error.h"
#include "orthant/base/philox.h"

namespace orthant {
namespace {

constexpr std::uint64_t low_mask(int bits) {
  return (std::uint64_t{1} << bits) - 1;
}

// The finalizer of MurmurHash3: every input bit reaches every output bit.
constexpr std::uint64_t mixed(std::uint64_t value) {
  value = (value ^ (value >> 33)) * 0xff51afd7ed558ccd;
  value = (value ^ (value >> 33)) * 0xc4ceb9fe1a85ec53;
  return value ^ (value >> 33);
}

}  // namespace

Permutation::Permutation(std::uint64_t size, std::uint64_t seed, std::uint64_t epoch) : size_(size) {
  if (size == 0) throw InternalError("a permutation of no elements was asked for");
  const int bits = std::bit_width(size - 1);
  high_bits_ = bits / 2;
  low_bits_ = bits - high_bits_;
  const std::uint64_t stream = stream_hash("permutation", {epoch});
  for (std::size_t i = 0; i < round_keys_.size(); ++i) {
    const auto words = philox(philox_counter(i, stream), philox_key(seed));
    round_keys_[i] = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
  }
}

std::uint64_t Permutation::shuffled_once(std::uint64_t value) const {
  std::uint64_t low = value & low_mask(low_bits_);
  std::uint64_t high = value >> low_bits_;
  for (std::size_t i = 0; i < round_keys_.size(); i += 2) {
    high ^= mixed(low ^ round_keys_[i]) & low_mask(high_bits_);
    low ^= mixed(high ^ round_keys_[i + 1]) & low_mask(low_bits_);
  }
  return high << low_bits_ | low;
}

std::uint64_t Permutation::operator()(std::uint64_t index) const {
  if (index >= size_) throw InternalError(fmt::format("index {} of a permutation of {} elements", index, size_));
  // The network permutes fewer than twice as many values: following its cycle from inside leads back inside, after two
  // steps on average at most.
  std::uint64_t value = shuffled_once(index);
  while (value >= size_) value = shuffled_once(value);
  return value;
}

}  // namespace orthant
