// Note [Random bits]
// Block b of a stream gives four words; elements 2b and 2b+1 take 64 bits each. Where 16 bits of an element are enough,
// elements 8b to 8b+7 take the halves of the four words, lower half first. A uniform is the upper 52 of 64 bits. A
// normal pair is Box-Muller on both: the first element is the cosine, the second the sine. The logarithm, sine and
// cosine are written here with +, -, *, / and sqrt only. IEEE 754 fixes the result of each of these, and CMakeLists.txt
// forbids fusing them for this file, so the bits are the same for every slicing, vector width, compiler and C library.
#include "orthant/base/random.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "orthant/base/error.h"

namespace orthant {
namespace {

constexpr std::size_t kBatchBlocks = 64;

// In [1, 2), with the upper 52 bits as its fraction.
inline double one_to_two(std::uint64_t bits) {
  return std::bit_cast<double>(bits >> 12 | 0x3ff0000000000000);
}

// The natural logarithm of x in (0, 1]: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 atanh((m - 1) / (m + 1)).
inline double logarithm(double x) {
  constexpr std::uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  constexpr std::uint64_t kFraction = 0x000fffffffffffff;
  const std::uint64_t above = std::bit_cast<std::uint64_t>(x) - kSqrtHalf;
  // The exponent as a double without a 64-bit integer conversion, which narrow vector units lack: 2^52 + (e + 1023) is
  // assembled from its bits.
  const double exponent =
      std::bit_cast<double>((((above >> 52) + 1023) & 0xfff) | 0x4330000000000000) - (4503599627370496.0 + 1023.0);
  const double m = std::bit_cast<double>((above & kFraction) + kSqrtHalf);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double series = 1.0 / 21;
  for (const double term : {1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13, 1.0 / 11, 1.0 / 9, 1.0 / 7, 1.0 / 5, 1.0 / 3}) {
    series = series * z + term;
  }
  constexpr double kLn2 = 0.693147180559945309417;
  return exponent * kLn2 + (2.0 * s + 2.0 * s * z * series);
}

struct SineCosine {
  double sine;
  double cosine;
};

// Of 2 pi (turn - 1), turn in [1, 2): the nearest quarter turn is taken off exactly, Taylor series do the rest of at
// most an eighth.
inline SineCosine sine_cosine(double turn) {
  constexpr double kHalfPi = 1.57079632679489661923;
  constexpr double kRounder = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves the nearest integer in the low bits
  const double quarters = 4.0 * turn;
  const double shifted = quarters + kRounder;
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(shifted);
  const double x = (quarters - (shifted - kRounder)) * kHalfPi;
  const double z = x * x;
  double sine = 1.0 / 355687428096000;
  for (const double term :
       {-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880, -1.0 / 5040, 1.0 / 120, -1.0 / 6}) {
    sine = sine * z + term;
  }
  sine = x + x * z * sine;
  double cosine = 1.0 / 20922789888000;
  for (const double term :
       {-1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800, 1.0 / 40320, -1.0 / 720, 1.0 / 24, -1.0 / 2, 1.0}) {
    cosine = cosine * z + term;
  }
  // Each quarter turn swaps the two and negates one; both are done on the bits, without a branch.
  const std::uint64_t sine_bits = std::bit_cast<std::uint64_t>(sine);
  const std::uint64_t cosine_bits = std::bit_cast<std::uint64_t>(cosine);
  const std::uint64_t swap = (sine_bits ^ cosine_bits) & (0 - (quadrant & 1));
  const std::uint64_t sine_sign = (quadrant & 2) << 62;
  const std::uint64_t cosine_sign = ((quadrant + 1) & 2) << 62;
  return {std::bit_cast<double>((sine_bits ^ swap) ^ sine_sign),
          std::bit_cast<double>((cosine_bits ^ swap) ^ cosine_sign)};
}

// The 64 bits of both elements of each block of a batch.
struct Batch {
  std::array<std::uint64_t, kBatchBlocks> even;
  std::array<std::uint64_t, kBatchBlocks> odd;
};

inline void draw(Batch& batch, PhiloxKey key, std::uint64_t stream, std::uint64_t first_block, std::size_t blocks) {
  for (std::size_t j = 0; j < blocks; ++j) {
    const auto words = philox(philox_counter(first_block + j, stream), key);
    batch.even[j] = static_cast<std::uint64_t>(words[1]) << 32 | words[0];
    batch.odd[j] = static_cast<std::uint64_t>(words[3]) << 32 | words[2];
  }
}

struct Uniform {
  double low;
  double width;

  void values(const Batch& batch, std::size_t blocks, double* out) const {
    for (std::size_t j = 0; j < blocks; ++j) {
      out[2 * j] = low + width * (one_to_two(batch.even[j]) - 1.0);
      out[2 * j + 1] = low + width * (one_to_two(batch.odd[j]) - 1.0);
    }
  }
};

struct Normal {
  double mean;
  double stddev;

  void values(const Batch& batch, std::size_t blocks, double* out) const {
    for (std::size_t j = 0; j < blocks; ++j) {
      // 2 - [1, 2) lies in (0, 1]: the logarithm is finite, and the radius at most sqrt(-2 ln 2^-52) = 8.5.
      const double radius = std::sqrt(-2.0 * logarithm(2.0 - one_to_two(batch.even[j])));
      const auto [sine, cosine] = sine_cosine(one_to_two(batch.odd[j]));
      out[2 * j] = mean + stddev * (radius * cosine);
      out[2 * j + 1] = mean + stddev * (radius * sine);
    }
  }
};

template <typename T, typename Distribution>
void fill_run(const RandomStream& stream, T* out, std::uint64_t first, std::uint64_t count,
              const Distribution& distribution) {
  Batch batch;
  std::array<double, 2 * kBatchBlocks> values;
  while (count > 0) {
    const std::uint64_t skipped = first & 1;
    const std::size_t taken = std::min<std::uint64_t>(count, 2 * kBatchBlocks - skipped);
    const std::size_t blocks = (skipped + taken + 1) / 2;
    draw(batch, stream.key(), stream.stream(), first / 2, blocks);
    distribution.values(batch, blocks, values.data());
    for (std::size_t j = 0; j < taken; ++j) out[j] = static_cast<T>(values[skipped + j]);
    out += taken;
    first += taken;
    count -= taken;
  }
}

std::uint64_t checked_num_elements(const TensorBox& box, std::size_t out_size) {
  const std::size_t dims = box.global_shape.size();
  bool valid = box.offsets.size() == dims && box.lengths.size() == dims;
  std::uint64_t num_elements = 1;
  std::uint64_t global_elements = 1;
  for (std::size_t d = 0; valid && d < dims; ++d) {
    const std::int64_t size = box.global_shape[d];
    valid = size >= 0 && box.offsets[d] >= 0 && box.lengths[d] >= 0 && box.offsets[d] <= size - box.lengths[d];
    if (!valid) break;
    num_elements *= static_cast<std::uint64_t>(box.lengths[d]);
    valid = !__builtin_mul_overflow(global_elements, static_cast<std::uint64_t>(size), &global_elements);
  }
  if (!valid || num_elements != out_size) {
    throw InternalError(fmt::format(
        "random fill of {} elements: the box at [{}] of lengths [{}] does not fit a tensor of "
        "shape [{}] or the output",
        out_size, fmt::join(box.offsets, ", "), fmt::join(box.lengths, ", "), fmt::join(box.global_shape, ", ")));
  }
  return num_elements;
}

template <typename T, typename Distribution>
void fill_box(const RandomStream& stream, std::span<T> out, const TensorBox& box, const Distribution& distribution) {
  if (checked_num_elements(box, out.size()) == 0) return;
  const std::size_t dims = box.global_shape.size();
  // Whole trailing dims and the first cut one form runs that are contiguous in the global tensor.
  std::size_t outer = dims;
  std::uint64_t run = 1;
  while (outer > 0) {
    --outer;
    run *= static_cast<std::uint64_t>(box.lengths[outer]);
    if (box.lengths[outer] != box.global_shape[outer]) break;
  }
  std::vector<std::int64_t> position(box.offsets);
  for (std::size_t written = 0; written < out.size(); written += run) {
    std::uint64_t first = 0;
    for (std::size_t d = 0; d < dims; ++d) {
      first = first * static_cast<std::uint64_t>(box.global_shape[d]) + static_cast<std::uint64_t>(position[d]);
    }
    fill_run(stream, out.data() + written, first, run, distribution);
    for (std::size_t d = outer; d-- > 0;) {
      if (++position[d] < box.offsets[d] + box.lengths[d]) break;
      position[d] = box.offsets[d];
    }
  }
}

}  // namespace

std::uint64_t RandomStream::bits(std::uint64_t index) const {
  Batch batch;
  draw(batch, key_, stream_, index / 2, 1);
  return (index & 1) != 0 ? batch.odd[0] : batch.even[0];
}

std::uint16_t RandomStream::short_bits(std::uint64_t index) const {
  const auto words = philox(philox_counter(index / 8, stream_), key_);
  return static_cast<std::uint16_t>(words[index % 8 / 2] >> (index % 2 * 16));
}

double RandomStream::uniform(std::uint64_t index) const {
  return one_to_two(bits(index)) - 1.0;
}

double RandomStream::normal(std::uint64_t index) const {
  double value = 0;
  fill_run(*this, &value, index, 1, Normal{0.0, 1.0});
  return value;
}

void RandomStream::fill_uniform(std::span<float> out, std::uint64_t first_element, double low, double high) const {
  fill_run(*this, out.data(), first_element, out.size(), Uniform{low, high - low});
}

void RandomStream::fill_uniform(std::span<double> out, std::uint64_t first_element, double low, double high) const {
  fill_run(*this, out.data(), first_element, out.size(), Uniform{low, high - low});
}

void RandomStream::fill_normal(std::span<float> out, std::uint64_t first_element, double mean, double stddev) const {
  fill_run(*this, out.data(), first_element, out.size(), Normal{mean, stddev});
}

void RandomStream::fill_normal(std::span<double> out, std::uint64_t first_element, double mean, double stddev) const {
  fill_run(*this, out.data(), first_element, out.size(), Normal{mean, stddev});
}

void RandomStream::fill_uniform(std::span<float> out, const TensorBox& box, double low, double high) const {
  fill_box(*this, out, box, Uniform{low, high - low});
}

void RandomStream::fill_uniform(std::span<double> out, const TensorBox& box, double low, double high) const {
  fill_box(*this, out, box, Uniform{low, high - low});
}

void RandomStream::fill_normal(std::span<float> out, const TensorBox& box, double mean, double stddev) const {
  fill_box(*this, out, box, Normal{mean, stddev});
}

void RandomStream::fill_normal(std::span<double> out, const TensorBox& box, double mean, double stddev) const {
  fill_box(*this, out, box, Normal{mean, stddev});
}

}  // namespace orthant
