// Random tensors that do not depend on how they are cut. Element i of the tensor called `name` is a pure function of
// (seed, name, i), where i counts the elements of the global, row-major tensor: a rank that holds a slice draws exactly
// the values that one process would have drawn there. See Note [Random bits] in random.cpp for the arithmetic.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "orthant/base/philox.h"

namespace orthant {

// The part of a global row-major tensor that starts at `offsets` and has `lengths` elements along each dim.
struct TensorBox {
  std::vector<std::int64_t> global_shape;
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> lengths;
};

// Float and double fills draw the same numbers: a float is the rounding of the double at its index. Rounding may make a
// uniform value equal to `high`. A stream is a value without state; all methods are Local and may run on any thread.
class RandomStream {
 public:
  // `indices` tell streams of one name apart: a step, a microbatch, a layer.
  RandomStream(std::uint64_t seed, std::string_view name, std::initializer_list<std::uint64_t> indices = {})
      : key_(philox_key(seed)), stream_(stream_hash(name, indices)) {}

  // Single elements. uniform() lies in [0, 1), normal() has mean 0 and standard deviation 1.
  std::uint64_t bits(std::uint64_t index) const;
  // Eight to a block, for what needs few bits of many elements; unlike bits().
  std::uint16_t short_bits(std::uint64_t index) const;
  double uniform(std::uint64_t index) const;
  double normal(std::uint64_t index) const;

  // Fills `out` with the elements from `first_element` on.
  void fill_uniform(std::span<float> out, std::uint64_t first_element, double low, double high) const;
  void fill_uniform(std::span<double> out, std::uint64_t first_element, double low, double high) const;
  void fill_normal(std::span<float> out, std::uint64_t first_element, double mean, double stddev) const;
  void fill_normal(std::span<double> out, std::uint64_t first_element, double mean, double stddev) const;

  // Fills `out`, row-major, with the elements of `box`. Throws InternalError when the box leaves its tensor or `out`
  // has another size.
  void fill_uniform(std::span<float> out, const TensorBox& box, double low, double high) const;
  void fill_uniform(std::span<double> out, const TensorBox& box, double low, double high) const;
  void fill_normal(std::span<float> out, const TensorBox& box, double mean, double stddev) const;
  void fill_normal(std::span<double> out, const TensorBox& box, double mean, double stddev) const;

  // For counters built elsewhere, such as a dropout mask drawn on a device.
  PhiloxKey key() const { return key_; }
  std::uint64_t stream() const { return stream_; }

 private:
  PhiloxKey key_;
  std::uint64_t stream_;
};

}  // namespace orthant
