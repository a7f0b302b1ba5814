// Every kernel, on every instruction set of this machine, against the oracle.
#include "orthant/shm/reduce.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "shm/reduce_oracle.h"

namespace orthant::shm {
namespace reduce_test {
using namespace test;  // the oracle's words

// ---- Buffers ----

// Elements in memory at an address that is `misalignment` bytes off a multiple of 64, with guards on both sides.
class Buffer {
 public:
  Buffer(Dtype dtype, const Elements& elements, std::size_t misalignment)
      : dtype_(dtype), num_bytes_(elements.size() * size_of(dtype)), bytes_(num_bytes_ + 256, kGuard) {
    const auto address = reinterpret_cast<std::uintptr_t>(bytes_.data());
    start_ = 64 + (64 - address % 64) % 64 + misalignment;
    for (std::size_t i = 0; i < elements.size(); ++i) {
      std::memcpy(data() + i * size_of(dtype), &elements[i], size_of(dtype));
    }
  }

  unsigned char* data() { return bytes_.data() + start_; }

  Elements elements() const {
    Elements result(num_bytes_ / size_of(dtype_));
    for (std::size_t i = 0; i < result.size(); ++i) {
      std::memcpy(&result[i], bytes_.data() + start_ + i * size_of(dtype_), size_of(dtype_));
    }
    return result;
  }

  bool guards_are_intact() const {
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if ((i < start_ || i >= start_ + num_bytes_) && bytes_[i] != kGuard) return false;
    }
    return true;
  }

 private:
  static constexpr unsigned char kGuard = 0xa5;
  Dtype dtype_;
  std::size_t num_bytes_;
  std::size_t start_ = 0;
  std::vector<unsigned char> bytes_;
};

enum class Alignment { kAligned, kAllByOneByte, kEachDifferent };

std::size_t misalignment(Alignment alignment, std::size_t index) {
  if (alignment == Alignment::kAligned) return 0;
  return alignment == Alignment::kAllByOneByte ? 1 : (index * 7 + 3) % 64;
}

std::vector<Buffer> buffers_of(Dtype dtype, const std::vector<Elements>& inputs, Alignment alignment) {
  std::vector<Buffer> buffers;
  buffers.reserve(inputs.size());
  for (std::size_t k = 0; k < inputs.size(); ++k) buffers.emplace_back(dtype, inputs[k], misalignment(alignment, k));
  return buffers;
}

std::vector<void*> pointers_of(std::vector<Buffer>& buffers) {
  std::vector<void*> pointers;
  pointers.reserve(buffers.size());
  for (Buffer& buffer : buffers) pointers.push_back(buffer.data());
  return pointers;
}

// Values whose sums stay finite for a while, with every eighth element any bits at all: infinities, NaN, denormals.
Element random_element(Dtype dtype, std::mt19937_64& random) {
  if (random() % 8 == 0) return random() >> (64 - 8 * size_of(dtype));
  const auto value = static_cast<float>(std::normal_distribution<double>(0.0, 4.0)(random));
  switch (dtype) {
    case Dtype::f32:
      return std::bit_cast<std::uint32_t>(value);
    case Dtype::f64:
      return std::bit_cast<std::uint64_t>(static_cast<double>(value) * 1.1);
    case Dtype::bf16:
      return kBf16.rounded(value);
    case Dtype::f16:
      return kF16.rounded(value);
    default:
      return random() >> (64 - 8 * size_of(dtype));
  }
}

std::vector<Elements> random_inputs(Dtype dtype, std::size_t num_inputs, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<Elements> inputs(num_inputs, Elements(count));
  for (Elements& input : inputs) {
    for (Element& element : input) element = random_element(dtype, random);
  }
  return inputs;
}

testing::AssertionResult same(Dtype dtype, const Elements& found, const Elements& expected) {
  if (found.size() != expected.size()) return testing::AssertionFailure() << "sizes differ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    const bool both_nan = is_nan(dtype, found[i]) && is_nan(dtype, expected[i]);
    if (found[i] != expected[i] && !both_nan) {
      return testing::AssertionFailure() << name_of(dtype) << " element " << i << " of " << found.size() << std::hex
                                         << " is 0x" << found[i] << " instead of 0x" << expected[i];
    }
  }
  return testing::AssertionSuccess();
}

Elements reduce_out_of_place(Isa isa, Dtype dtype, Reduce op, const std::vector<Elements>& inputs) {
  std::vector<Buffer> buffers = buffers_of(dtype, inputs, Alignment::kAligned);
  Buffer output(dtype, Elements(inputs[0].size()), 0);
  reduce(isa, dtype, op, output.data(), pointers_of(buffers).data(), static_cast<int>(inputs.size()), inputs[0].size());
  return output.elements();
}

std::vector<Isa> supported_isas() {
  std::vector<Isa> isas;
  for (const Isa isa : {Isa::plain, Isa::avx2, Isa::avx512}) {
    if (supported(isa)) isas.push_back(isa);
  }
  return isas;
}

std::string isa_name(Isa isa) {
  return isa == Isa::plain ? "plain" : isa == Isa::avx2 ? "avx2" : "avx512";
}

// ---- All dtypes and reductions on all instruction sets of this machine ----

using Case = std::tuple<Isa, Dtype, Reduce>;

class ReduceKernels : public testing::TestWithParam<Case> {
 protected:
  Isa isa() const { return std::get<0>(GetParam()); }
  Dtype dtype() const { return std::get<1>(GetParam()); }
  Reduce op() const { return std::get<2>(GetParam()); }

  // `aliased` < num_inputs: the output is that input.
  void expect_oracle(const std::vector<Elements>& inputs, const Elements& expected, Alignment alignment,
                     std::size_t aliased) const {
    std::vector<Buffer> buffers = buffers_of(dtype(), inputs, alignment);
    const std::vector<void*> pointers = pointers_of(buffers);
    Buffer separate(dtype(), Elements(expected.size()), misalignment(alignment, inputs.size()));
    Buffer& output = aliased < inputs.size() ? buffers[aliased] : separate;
    reduce(isa(), dtype(), op(), output.data(), pointers.data(), static_cast<int>(inputs.size()), expected.size());
    ASSERT_TRUE(same(dtype(), output.elements(), expected));
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      ASSERT_TRUE(buffers[k].guards_are_intact());
      if (k == aliased) continue;
      ASSERT_EQ(buffers[k].elements(), inputs[k]) << "input " << k << " was written";
    }
    ASSERT_TRUE(separate.guards_are_intact());
  }
};

TEST_P(ReduceKernels, EqualTheOracleForAnyCountAlignmentAndAliasing) {
  for (const std::size_t num_inputs : {1, 2, 3, 4, 5, 8, 9}) {
    for (const std::size_t count : {0, 1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 63, 64, 65, 127, 1000, 4099}) {
      const std::vector<Elements> inputs = random_inputs(dtype(), num_inputs, count, num_inputs * 10000 + count);
      const Elements expected = oracle(dtype(), op(), inputs);
      for (const Alignment alignment : {Alignment::kAligned, Alignment::kAllByOneByte, Alignment::kEachDifferent}) {
        for (std::size_t aliased = 0; aliased <= num_inputs; ++aliased) {
          SCOPED_TRACE("inputs " + std::to_string(num_inputs) + ", count " + std::to_string(count) + ", output " +
                       std::to_string(aliased));
          expect_oracle(inputs, expected, alignment, aliased);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ReduceKernels, ReduceSixtyFourInputs) {
  const std::vector<Elements> inputs = random_inputs(dtype(), 64, 3001, 64);
  const Elements expected = oracle(dtype(), op(), inputs);
  expect_oracle(inputs, expected, Alignment::kEachDifferent, 64);
  expect_oracle(inputs, expected, Alignment::kEachDifferent, 63);
}

TEST_P(ReduceKernels, DoNotDependOnWhereTheRangeIsCut) {
  constexpr std::size_t kCount = 2500;
  for (const std::size_t num_inputs : {2, 4, 7}) {
    const std::vector<Elements> inputs = random_inputs(dtype(), num_inputs, kCount, num_inputs);
    const Elements whole = reduce_out_of_place(isa(), dtype(), op(), inputs);
    std::mt19937_64 random(num_inputs);
    std::vector<Buffer> buffers = buffers_of(dtype(), inputs, Alignment::kAligned);
    Buffer output(dtype(), Elements(kCount), 0);
    for (std::size_t begin = 0; begin < kCount;) {
      const std::size_t size = std::min<std::size_t>(kCount - begin, random() % 90);
      std::vector<void*> pointers = pointers_of(buffers);
      for (void*& pointer : pointers) pointer = static_cast<unsigned char*>(pointer) + begin * size_of(dtype());
      reduce(isa(), dtype(), op(), output.data() + begin * size_of(dtype()), pointers.data(),
             static_cast<int>(num_inputs), size);
      begin += size;
    }
    EXPECT_TRUE(same(dtype(), output.elements(), whole)) << num_inputs << " inputs";
  }
}

// The special values of each float type, every one combined with every other.
Elements special_values(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32:
      return {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000,
              0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
    case Dtype::f64:
      return {0x0000000000000000, 0x8000000000000000, 0x0000000000000001, 0x800fffffffffffff, 0x0010000000000000,
              0x3ff0000000000000, 0xbff0000000000000, 0x7fefffffffffffff, 0xffefffffffffffff, 0x7ff0000000000000,
              0xfff0000000000000, 0x7ff8000000000000, 0x7ff0000000000001};
    case Dtype::bf16:  // 0x3f80 + 0x3b80 and 0x3f81 + 0x3b80 are ties
      return {0x0000, 0x8000, 0x0001, 0x8001, 0x007f, 0x0080, 0x3f80, 0x3f81, 0x3b80, 0xbb80,
              0x3b81, 0x7f7f, 0xff7f, 0x7b00, 0x7b80, 0x7f80, 0xff80, 0x7fc0, 0xffc1, 0x7f81};
    case Dtype::f16:  // 0x7bff + 0x4c00 is 65520, the least sum that overflows
      return {0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x83ff, 0x0400, 0x3c00, 0x3c01, 0x1000, 0x1001,
              0x9000, 0x7bff, 0xfbff, 0x4bff, 0x4c00, 0xcc00, 0x7c00, 0xfc00, 0x7e00, 0xfe01, 0x7c01};
    case Dtype::i64:
      return {0, 1, 0x7fffffffffffffff, 0x8000000000000000, 0xffffffffffffffff};
    case Dtype::i32:
      return {0, 1, 0x7fffffff, 0x80000000, 0xffffffff};
    case Dtype::u8:
      return {0, 1, 0x7f, 0x80, 0xff};
  }
  return {};
}

TEST_P(ReduceKernels, TreatSpecialValuesAsTheOracle) {
  std::vector<Elements> inputs(3);
  for (const Element first : special_values(dtype())) {
    for (const Element second : special_values(dtype())) {
      for (const Element third : special_values(dtype())) {
        inputs[0].push_back(first);
        inputs[1].push_back(second);
        inputs[2].push_back(third);
      }
    }
  }
  EXPECT_TRUE(same(dtype(), reduce_out_of_place(isa(), dtype(), op(), inputs), oracle(dtype(), op(), inputs)));
  inputs.pop_back();
  EXPECT_TRUE(same(dtype(), reduce_out_of_place(isa(), dtype(), op(), inputs), oracle(dtype(), op(), inputs)));
}

INSTANTIATE_TEST_SUITE_P(All, ReduceKernels,
                         testing::Combine(testing::ValuesIn(supported_isas()), testing::ValuesIn(kDtypes),
                                          testing::Values(Reduce::sum, Reduce::max)),
                         [](const testing::TestParamInfo<Case>& info) {
                           return isa_name(std::get<0>(info.param)) + "_" + name_of(std::get<1>(info.param)) +
                                  (std::get<2>(info.param) == Reduce::sum ? "_sum" : "_max");
                         });

// ---- Sixteen-bit floats in full ----

class ReduceNarrowFloats : public testing::TestWithParam<std::tuple<Isa, Dtype>> {};

TEST_P(ReduceNarrowFloats, KeepEveryValueWhenMinusZeroIsAdded) {
  const auto [isa, dtype] = GetParam();
  std::vector<Elements> inputs(2, Elements(65536, 0x8000));
  for (std::size_t i = 0; i < 65536; ++i) inputs[0][i] = i;
  EXPECT_TRUE(same(dtype, reduce_out_of_place(isa, dtype, Reduce::sum, inputs), inputs[0]));
}

TEST_P(ReduceNarrowFloats, RoundSumsOfNeighbouringMagnitudesToNearestEven) {
  const auto [isa, dtype] = GetParam();
  const Element exponent_step = dtype == Dtype::f16 ? 0x0400 : 0x0080;
  for (const Element steps : {0, 1, 2, 8, 9, 11, 12}) {
    std::vector<Elements> inputs(2, Elements(65536));
    for (std::size_t i = 0; i < 65536; ++i) {
      inputs[0][i] = i;
      inputs[1][i] = (i * 40503 + 12345 - steps * exponent_step) & 0xffff;
      if (i % 2 == 0) inputs[1][i] = (i - steps * exponent_step) & 0xffff;
    }
    EXPECT_TRUE(same(dtype, reduce_out_of_place(isa, dtype, Reduce::sum, inputs), oracle(dtype, Reduce::sum, inputs)));
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReduceNarrowFloats,
                         testing::Combine(testing::ValuesIn(supported_isas()),
                                          testing::Values(Dtype::bf16, Dtype::f16)),
                         [](const auto& info) {
                           return isa_name(std::get<0>(info.param)) + "_" + name_of(std::get<1>(info.param));
                         });

TEST(Reduce, AccumulatesSixteenBitFloatsInSinglePrecision) {
  // 2^-8 is half of the last bit of 1: rounded after each addition, the sum would stay 1.
  const std::vector<Elements> inputs = {{0x3f80}, {0x3b80}, {0x3b80}, {0x3b80}};
  EXPECT_EQ(reduce_out_of_place(best_isa(), Dtype::bf16, Reduce::sum, inputs), Elements{0x3f82});
}

TEST(Reduce, OverflowsHalfPrecisionToInfinityFrom65520On) {
  EXPECT_EQ(reduce_out_of_place(best_isa(), Dtype::f16, Reduce::sum, {{0x7bff, 0x7bff}, {0x4bff, 0x4c00}}),
            (Elements{0x7bff, 0x7c00}));
}

TEST(Reduce, GivesNanWhenEitherMaximumOperandIsNan) {
  const Elements found =
      reduce_out_of_place(best_isa(), Dtype::f32, Reduce::max,
                          {{0x7fc00000, 0x3f800000, 0x40000000}, {0x3f800000, 0x7fc00000, 0xff800000}});
  EXPECT_TRUE(is_nan(Dtype::f32, found[0]));
  EXPECT_TRUE(is_nan(Dtype::f32, found[1]));
  EXPECT_EQ(found[2], 0x40000000u);
}

TEST(Reduce, ChoosesASupportedInstructionSetByItself) {
  EXPECT_TRUE(supported(Isa::plain));
  EXPECT_EQ(best_isa(), supported_isas().back());
  const std::vector<Elements> inputs = random_inputs(Dtype::f32, 3, 100, 1);
  std::vector<Buffer> buffers = buffers_of(Dtype::f32, inputs, Alignment::kAligned);
  Buffer output(Dtype::f32, Elements(100), 0);
  reduce(Dtype::f32, Reduce::sum, output.data(), pointers_of(buffers).data(), 3, 100);
  EXPECT_TRUE(same(Dtype::f32, output.elements(), oracle(Dtype::f32, Reduce::sum, inputs)));
}

// ---- Several outputs ----

class ReduceToMany : public testing::TestWithParam<Dtype> {};

TEST_P(ReduceToMany, LeavesTheResultInAllInputsWhenTheyAreTheOutputs) {
  const Dtype dtype = GetParam();
  for (const Reduce op : {Reduce::sum, Reduce::max}) {
    for (const std::size_t num_inputs : {1, 2, 3, 4, 5, 8, 9}) {
      for (const std::size_t count : {0, 1, 17, 1000, 4099, 10007}) {
        const std::vector<Elements> inputs = random_inputs(dtype, num_inputs, count, num_inputs + count);
        const Elements expected = oracle(dtype, op, inputs);
        std::vector<Buffer> buffers = buffers_of(dtype, inputs, Alignment::kEachDifferent);
        const std::vector<void*> pointers = pointers_of(buffers);
        const int num = static_cast<int>(num_inputs);
        reduce_to_many(dtype, op, pointers.data(), num, pointers.data(), num, count);
        for (const Buffer& buffer : buffers) {
          ASSERT_TRUE(same(dtype, buffer.elements(), expected)) << num_inputs << " inputs";
          ASSERT_TRUE(buffer.guards_are_intact());
        }
      }
    }
  }
}

TEST_P(ReduceToMany, WritesSeparateOutputsAndSomeOfTheInputs) {
  const Dtype dtype = GetParam();
  const std::vector<Elements> inputs = random_inputs(dtype, 5, 5003, 7);
  const Elements expected = oracle(dtype, Reduce::sum, inputs);
  std::vector<Buffer> buffers = buffers_of(dtype, inputs, Alignment::kAllByOneByte);
  const std::vector<void*> pointers = pointers_of(buffers);
  Buffer separate(dtype, Elements(5003), 5);
  const std::array<void*, 3> outputs = {pointers[3], separate.data(), pointers[0]};
  reduce_to_many(dtype, Reduce::sum, outputs.data(), 3, pointers.data(), 5, 5003);
  EXPECT_TRUE(same(dtype, separate.elements(), expected));
  EXPECT_TRUE(separate.guards_are_intact());
  for (const std::size_t k : {0, 3}) EXPECT_TRUE(same(dtype, buffers[k].elements(), expected));
  for (const std::size_t k : {1, 2, 4}) EXPECT_EQ(buffers[k].elements(), inputs[k]);
}

INSTANTIATE_TEST_SUITE_P(All, ReduceToMany, testing::ValuesIn(kDtypes),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST(Dtype, HasTheSizeAndNameOfItsElements) {
  const std::array<std::size_t, 7> sizes = {4, 8, 2, 2, 8, 4, 1};
  const std::array<std::string, 7> names = {"f32", "f64", "bf16", "f16", "i64", "i32", "u8"};
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    EXPECT_EQ(size_of(kDtypes[i]), sizes[i]);
    EXPECT_EQ(name_of(kDtypes[i]), names[i]);
  }
}

}  // namespace reduce_test
}  // namespace orthant::shm
