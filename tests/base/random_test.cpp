#include "orthant/base/random.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <numeric>

#include "base/error_text.h"

namespace orthant {
namespace random_test {

// The known answers that Random123 publishes for philox4x32 with 10 rounds.
static_assert(philox({0, 0, 0, 0}, {0, 0}) == PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
static_assert(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
              PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
static_assert(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
              PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});

// The published FNV-1a 64 test vectors.
static_assert(stream_hash("") == 0xcbf29ce484222325);
static_assert(stream_hash("a") == 0xaf63dc4c8601ec8c);
static_assert(stream_hash("foobar") == 0x85944171f73967e8);

constexpr double kLow = -0.5;
constexpr double kHigh = 2.5;

std::vector<double> normals(const RandomStream& stream, std::size_t count, std::uint64_t first = 0) {
  std::vector<double> values(count);
  stream.fill_normal(values, first, 0.0, 1.0);
  return values;
}

// The slow, obvious version: one element at a time.
std::vector<float> box_by_element(const std::vector<float>& global, const TensorBox& box) {
  std::vector<float> values;
  const std::size_t dims = box.global_shape.size();
  const auto count = std::accumulate(box.lengths.begin(), box.lengths.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t rest = i;
    std::int64_t index = 0;
    std::int64_t stride = 1;
    for (std::size_t d = dims; d-- > 0;) {
      index += (box.offsets[d] + rest % box.lengths[d]) * stride;
      rest /= box.lengths[d];
      stride *= box.global_shape[d];
    }
    values.push_back(global[static_cast<std::size_t>(index)]);
  }
  return values;
}

TEST(StreamHash, TellsIndicesApart) {
  EXPECT_NE(stream_hash("dropout", {1}), stream_hash("dropout", {2}));
  EXPECT_NE(stream_hash("dropout", {1, 2}), stream_hash("dropout", {2, 1}));
  EXPECT_NE(stream_hash("dropout", {0}), stream_hash("dropout"));
}

TEST(RandomStream, GivesEachRangeTheElementsOfTheWhole) {
  const RandomStream stream(42, "layers.0.weight");
  constexpr std::size_t kSize = 700;
  std::vector<float> uniform(kSize);
  std::vector<float> normal(kSize);
  stream.fill_uniform(uniform, 0, kLow, kHigh);
  stream.fill_normal(normal, 0, 1.0, 0.02);
  for (std::size_t first = 0; first < kSize; first += 13) {
    for (const std::size_t count : {0, 1, 2, 3, 17, 127, 128, 129, 300}) {
      if (first + count > kSize) continue;
      std::vector<float> part(count);
      stream.fill_uniform(part, first, kLow, kHigh);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), uniform.begin() + static_cast<std::ptrdiff_t>(first)));
      stream.fill_normal(part, first, 1.0, 0.02);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), normal.begin() + static_cast<std::ptrdiff_t>(first)));
    }
  }
}

TEST(RandomStream, GivesEachBoxTheElementsOfTheWhole) {
  const RandomStream stream(42, "experts.weight");
  const std::vector<std::int64_t> shape = {3, 5, 7, 4};
  std::vector<float> uniform(3 * 5 * 7 * 4);
  std::vector<float> normal(uniform.size());
  stream.fill_uniform(uniform, 0, kLow, kHigh);
  stream.fill_normal(normal, 0, 0.0, 1.0);
  const std::vector<TensorBox> boxes = {{shape, {0, 0, 0, 0}, {3, 5, 7, 4}}, {shape, {1, 0, 0, 0}, {2, 5, 7, 4}},
                                        {shape, {0, 2, 0, 0}, {3, 2, 7, 4}}, {shape, {0, 0, 3, 0}, {3, 5, 3, 4}},
                                        {shape, {0, 0, 0, 1}, {3, 5, 7, 1}}, {shape, {2, 4, 6, 3}, {1, 1, 1, 1}},
                                        {shape, {1, 1, 1, 1}, {2, 3, 5, 2}}, {shape, {0, 1, 0, 0}, {3, 0, 7, 4}}};
  for (const auto& box : boxes) {
    const auto expected_uniform = box_by_element(uniform, box);
    std::vector<float> part(expected_uniform.size());
    stream.fill_uniform(part, box, kLow, kHigh);
    EXPECT_EQ(part, expected_uniform);
    stream.fill_normal(part, box, 0.0, 1.0);
    EXPECT_EQ(part, box_by_element(normal, box));
  }
}

TEST(RandomStream, FillsAScalarBox) {
  const RandomStream stream(1, "scale");
  std::vector<double> value(1);
  stream.fill_normal(value, TensorBox{}, 0.0, 1.0);
  EXPECT_EQ(value[0], stream.normal(0));
}

TEST(RandomStream, RoundsTheDoublesForFloats) {
  const RandomStream stream(5, "w");
  std::vector<float> singles(1001);
  std::vector<double> doubles(1001);
  stream.fill_normal(singles, 3, 0.1, 0.02);
  stream.fill_normal(doubles, 3, 0.1, 0.02);
  for (std::size_t i = 0; i < singles.size(); ++i) ASSERT_EQ(singles[i], static_cast<float>(doubles[i]));
  stream.fill_uniform(singles, 3, kLow, kHigh);
  stream.fill_uniform(doubles, 3, kLow, kHigh);
  for (std::size_t i = 0; i < singles.size(); ++i) ASSERT_EQ(singles[i], static_cast<float>(doubles[i]));
}

TEST(RandomStream, AgreesWithItsSingleElements) {
  const RandomStream stream(5, "w");
  std::vector<double> values(64);
  stream.fill_uniform(values, 0, 0.0, 1.0);
  for (std::uint64_t i = 0; i < 64; ++i) {
    EXPECT_EQ(values[i], stream.uniform(i));
    EXPECT_EQ(std::ldexp(static_cast<double>(stream.bits(i) >> 12), -52), values[i]);
  }
}

TEST(RandomStream, DrawsEightShortsOfABlock) {
  const RandomStream stream(5, "w");
  for (std::uint64_t block : {std::uint64_t{0}, std::uint64_t{3}, std::uint64_t{1} << 50}) {
    const auto words = philox(philox_counter(block, stream.stream()), stream.key());
    for (std::uint64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(stream.short_bits(8 * block + i), words[i / 2] >> (16 * (i % 2)) & 0xffff);
    }
  }
}

TEST(RandomStream, DrawsTheWordsOfItsPhiloxBlock) {
  const RandomStream stream(0x0123456789abcdef, "w", {7});
  const auto words = philox(philox_counter(5, stream_hash("w", {7})), philox_key(0x0123456789abcdef));
  EXPECT_EQ(stream.bits(10), static_cast<std::uint64_t>(words[1]) << 32 | words[0]);
  EXPECT_EQ(stream.bits(11), static_cast<std::uint64_t>(words[3]) << 32 | words[2]);
}

TEST(RandomStream, DependsOnSeedNameAndIndices) {
  const auto reference = normals(RandomStream(1, "a"), 100);
  EXPECT_EQ(reference, normals(RandomStream(1, "a"), 100));
  EXPECT_NE(reference, normals(RandomStream(2, "a"), 100));
  EXPECT_NE(reference, normals(RandomStream(std::uint64_t{1} << 32 | 1, "a"), 100));
  EXPECT_NE(reference, normals(RandomStream(1, "b"), 100));
  EXPECT_NE(reference, normals(RandomStream(1, "a", {0}), 100));
}

TEST(RandomStream, MatchesBoxMullerOfTheCLibrary) {
  const RandomStream stream(9, "w");
  constexpr std::uint64_t kPairs = 20'000;
  const auto values = normals(stream, 2 * kPairs);
  for (std::uint64_t pair = 0; pair < kPairs; ++pair) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - stream.uniform(2 * pair)));
    const double angle = 2.0 * std::acos(-1.0) * stream.uniform(2 * pair + 1);
    ASSERT_NEAR(values[2 * pair], radius * std::cos(angle), 1e-14);
    ASSERT_NEAR(values[2 * pair + 1], radius * std::sin(angle), 1e-14);
  }
}

TEST(RandomStream, HasTheMomentsOfItsDistribution) {
  constexpr std::size_t kSize = 1 << 20;
  const RandomStream stream(3, "moments");
  std::vector<double> values(kSize);
  const auto moment = [&](int power) {
    double sum = 0;
    for (const double value : values) sum += std::pow(value, power);
    return sum / kSize;
  };
  stream.fill_normal(values, 0, 0.0, 1.0);
  EXPECT_NEAR(moment(1), 0.0, 0.005);
  EXPECT_NEAR(moment(2), 1.0, 0.01);
  EXPECT_NEAR(moment(3), 0.0, 0.02);
  EXPECT_NEAR(moment(4), 3.0, 0.06);
  stream.fill_uniform(values, 0, 0.0, 1.0);
  EXPECT_NEAR(moment(1), 1.0 / 2, 0.002);
  EXPECT_NEAR(moment(2), 1.0 / 3, 0.002);
  for (const double value : values) ASSERT_TRUE(value >= 0.0 && value < 1.0);
}

TEST(RandomStream, ReachesTheLastElements) {
  const RandomStream stream(3, "w");
  const std::uint64_t last = ~std::uint64_t{0};
  EXPECT_EQ(normals(stream, 2, last - 1)[1], stream.normal(last));
}

TEST(RandomStream, KeepsItsBitsForEver) {
  const RandomStream stream(1234, "layers.0.weight");
  std::uint64_t digest = 0;
  for (const double value : normals(stream, 10'000)) digest = digest * 31 + std::bit_cast<std::uint64_t>(value);
  std::vector<float> uniform(10'000);
  stream.fill_uniform(uniform, 0, kLow, kHigh);
  for (const float value : uniform) digest = digest * 31 + std::bit_cast<std::uint32_t>(value);
  EXPECT_EQ(digest, 1926797868117138120u);
}

TEST(RandomStream, RefusesABoxThatLeavesItsTensor) {
  const RandomStream stream(1, "w");
  std::vector<float> out(6);
  const auto refusal = [&](const TensorBox& box) {
    return error_text<InternalError>([&] { stream.fill_normal(out, box, 0.0, 1.0); });
  };
  EXPECT_EQ(
      refusal({{4, 4}, {2, 1}, {2, 4}}),
      "random fill of 6 elements: the box at [2, 1] of lengths [2, 4] does not fit a tensor of shape [4, 4] or the "
      "output");
  EXPECT_FALSE(refusal({{4, 4}, {0, 0}, {2, 2}}).empty());
  EXPECT_FALSE(refusal({{4, 4}, {-1, 0}, {2, 3}}).empty());
  EXPECT_FALSE(refusal({{4, 4}, {0}, {6}}).empty());
  EXPECT_FALSE(refusal({{std::int64_t{1} << 40, std::int64_t{1} << 40}, {0, 0}, {2, 3}}).empty());
}

}  // namespace random_test
}  // namespace orthant
